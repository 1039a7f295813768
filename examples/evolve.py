#!/usr/bin/env python3
"""Searches for a better algorithm: mutates the numbers of a program, and selects children by their
`ccplane arena` scores.

    examples/evolve.py crates/algorithms/text/reno.ccp --minutes 10

A random search without a model: it shows how a program that writes algorithms uses the arena. At
the end the best candidate, the initial program and Cubic are scored on links that the search has
not seen, and the best is saved to --out. Needs only the standard library, and with --dask
`pip install 'ccplane[dask]'`.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time

NUMBER = re.compile(r"(?<![\w.#/])(\d+\.\d+|\d+/\d+|\d+)(?=[\s)]|us\b|ms\b)")


def mutated(text, rng):
    """Returns the text with one or two numbers of its program changed by up to a third. Numbers in
    the header are kept."""
    head, sep, program = text.partition("(def")
    places = [m for line in re.finditer(r"^[^#\n]*", program, re.M) for m in NUMBER.finditer(program, line.start(), line.end())]
    if not places:
        sys.exit("evolve: there is no number in this program to change")
    for place in sorted(rng.sample(places, min(len(places), rng.choice((1, 1, 2)))), key=lambda m: -m.start()):
        word, factor = place.group(), rng.uniform(2 / 3, 3 / 2)
        if "/" in word:
            num, den = map(int, word.split("/"))
            word = f"{max(0, min(den, round(num * factor)))}/{den}"
        elif "." in word:
            word = f"{float(word) * factor:.4f}"
        else:
            word = str(max(0, round(int(word) * factor) + rng.choice((-1, 0, 1))))
        program = program[: place.start()] + word + program[place.end() :]
    return head + sep + program


def arena(ccplane, files, *options):
    """Returns the arena's scores of these files. Exit code 1 means that some failed the gate, which
    is a valid result."""
    done = subprocess.run([ccplane, "arena", *files, "--json", *options], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"evolve: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[0])["candidates"]


def arena_on(executor, files):
    """Returns the arena's scores of these files from the workers of an executor."""
    from ccplane import arena

    answers = arena.evaluate_all(files, executor)
    return [{"score": answer["combined_score"], "gate_passed": bool(answer["passed"])} for answer in answers]


def workers(address):
    """Returns the executor of a Dask cluster; `None` without an address."""
    if address is None:
        return None
    from dask.distributed import Client

    return Client(address).get_executor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="the algorithm to begin with")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--children", type=int, default=12, help="a generation's")
    parser.add_argument("--parents", type=int, default=3, help="how many of them live")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--held-out", type=int, default=2, help="seed of the links that the search does not see")
    parser.add_argument("--ccplane", default="ccplane")
    parser.add_argument("--dask", metavar="ADDRESS", help="scheduler of a Dask cluster whose workers score the children")
    parser.add_argument("--out", default="evolved")
    args = parser.parse_args()

    executor = workers(args.dask)
    os.makedirs(args.out, exist_ok=True)
    rng = random.Random(args.seed)
    with open(args.text) as file:
        first = file.read()
    parents, known, tried = [(0.0, first)], {first}, 0
    deadline = time.monotonic() + args.minutes * 60
    generation = 0
    while time.monotonic() < deadline:
        generation += 1
        children = [] if generation > 1 else [first]
        while len(children) < args.children:
            child = mutated(rng.choice(parents)[1], rng)
            if child not in known:
                known.add(child)
                children.append(child)
        files = [os.path.join(args.out, f"child-{n}.ccp") for n in range(len(children))]
        for name, child in zip(files, children):
            with open(name, "w") as file:
                file.write(child)
        standings = arena(args.ccplane, files) if executor is None else arena_on(executor, files)
        tried += len(children)
        scored = [(standing["score"] or 0.0, child) for standing, child in zip(standings, children)]
        parents = sorted(scored + [p for p in parents if generation > 1], key=lambda one: -one[0])[: args.parents]
        passed = sum(standing["gate_passed"] for standing in standings)
        print(f"generation {generation}: best {parents[0][0]:.3f}, {passed} of {len(children)} passed the gate, {tried} tried", flush=True)
        for name in files:
            os.remove(name)

    best = os.path.join(args.out, "best.ccp")
    with open(best, "w") as file:
        file.write(parents[0][1])
    print(f"\non links that the search has not seen (seed {args.held_out}):")
    for standing in arena(args.ccplane, [best, args.text, "cubic"], "--held-out", str(args.held_out)):
        print(f"  {standing['score']:.3f}  {standing['candidate']}")
    print(f"\non kernel TCP: sudo {args.ccplane} run --alg {best} --vs native:cubic --rate 48mbit --rtt 40ms")


if __name__ == "__main__":
    main()
