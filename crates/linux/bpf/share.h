/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shares of the flow table. Network namespaces other than the agent's hold at most a quarter of the
 * slots each and three quarters together, so that no container and no unprivileged user can take
 * the last quarter from the host.
 *
 * A user may create any number of user namespaces and network namespaces without privileges. The
 * flows of all of them count in one share, which belongs to the user.
 */
#ifndef CCPLANE_SHARE_H
#define CCPLANE_SHARE_H

#define SHARE_HOME CCP_SHARES
#define MAX_USER_NAMESPACE_LEVEL 32 /* Linux allows no deeper nesting */
#define GOLDEN_RATIO_64 0x61C8864680B583EBULL /* linux/hash.h */

/* Kinds of owners of a share, in the low bits of their key. */
enum {
	OWNER_NETWORK_NAMESPACE,
	OWNER_USER,
	OWNER_USER_NAMESPACE,
};

/* Returns the index in plane.shares of a socket's network namespace. Two owners with the same
 * index, 1 in 1,024 pairs, have one share between them.
 */
INLINE __u32 share_of(struct tcp_sock *tp)
{
	struct net *net = tp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net;
	struct user_namespace *user = net->user_ns;
	__u64 cookie = net->net_cookie, key;
	if (cookie == READ_ONCE(plane.home))
		return SHARE_HOME;
	if (user->level == 0) {
		/* The network namespace was created by a privileged process. */
		key = cookie << 2 | OWNER_NETWORK_NAMESPACE;
	} else {
		for (int i = 0; i < MAX_USER_NAMESPACE_LEVEL && user->level > 1; i++)
			user = user->parent;
		__u64 owner = user->owner.val, id = user->ns.inum;
		/* Root creates one user namespace per container, and a user inside cannot leave it. */
		key = owner ? owner << 2 | OWNER_USER : id << 2 | OWNER_USER_NAMESPACE;
	}
	return key * GOLDEN_RATIO_64 >> 54 & (CCP_SHARES - 1);
}

/* Charges a slot to a share. Returns false, and charges nothing, if the share or the total of all
 * shares is used up.
 */
INLINE bool enter_share(__u32 share)
{
	__u32 slots = READ_ONCE(plane.slots), quarter = slots / 4;
	if (share >= CCP_SHARES)
		return true;
	if (__sync_fetch_and_add(&plane.guests, 1) < slots - quarter) {
		/* Rounded up: with fewer than four slots a namespace still gets one. */
		if (__sync_fetch_and_add(&plane.shares[share], 1) < (slots + 3) / 4)
			return true;
		__sync_fetch_and_add(&plane.shares[share], -1);
	}
	__sync_fetch_and_add(&plane.guests, -1);
	return false;
}

INLINE void leave_share(__u32 share)
{
	if (share >= CCP_SHARES)
		return;
	__sync_fetch_and_add(&plane.shares[share], -1);
	__sync_fetch_and_add(&plane.guests, -1);
}

#endif
