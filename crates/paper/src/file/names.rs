//! What a paper asks for: its figures, tables and charts, every name in them against the dimensions
//! of its grid.

use ccplane_lab::scenario::Problem;
use ccplane_report::TargetRange;
use toml::Spanned;

use super::check::Context;
use super::measure::Measure;
use super::written::{self, Text};
use super::{Chart, Column, Dim, Figure, Judged, Meant, Scale, Table, Take, X};

/// Names, where dimensions are known.
pub(super) struct Names<'t> {
    pub context: &'t Context<'t>,
    pub dims: &'t [Dim],
}

impl Names<'_> {
    fn contenders(&self) -> usize {
        self.dims.len() - 2
    }

    fn dim(&self, name: &Text) -> Result<usize, Problem> {
        let all: Vec<&str> = self.dims.iter().map(|dim| dim.name.as_str()).collect();
        let found = all.iter().position(|known| known == name.get_ref());
        found.ok_or_else(|| {
            self.context
                .source
                .unknown_name(name.span(), "axis", name.get_ref(), &all)
        })
    }

    fn value<T>(&self, dim: usize, key: &str, at: &Spanned<T>) -> Result<usize, Problem> {
        let values = self.dims.get(dim).map_or(&[][..], |dim| &dim.values);
        let all: Vec<&str> = values.iter().map(|value| value.key.as_str()).collect();
        let name = self
            .dims
            .get(dim)
            .map_or("value", |dim| match dim.name.as_str() {
                "on" => "place to run",
                name => name,
            });
        let found = all.iter().position(|known| *known == key);
        found.ok_or_else(|| self.context.source.unknown_name(at.span(), name, key, &all))
    }

    pub fn only(&self, only: &written::Only) -> Result<Vec<(usize, Vec<usize>)>, Problem> {
        let one = |(name, keys): (&Text, &Spanned<written::OneOrMore>)| -> Result<(usize, Vec<usize>), Problem> {
            let dim = self.dim(name)?;
            let values = keys.get_ref().0.iter().map(|key| self.value(dim, key, keys));
            Ok((dim, values.collect::<Result<_, Problem>>()?))
        };
        only.iter().map(one).collect()
    }

    /// The dimensions in the braces of a text.
    fn braces(&self, text: &Text) -> Result<Vec<usize>, Problem> {
        let mut found = Vec::new();
        let mut rest = text.get_ref().as_str();
        while let Some((name, after)) = rest
            .split_once('{')
            .and_then(|(_, after)| after.split_once('}'))
        {
            let dim = self.dim(&Spanned::new(text.span(), name.to_owned()))?;
            if !found.contains(&dim) {
                found.push(dim);
            }
            rest = after;
        }
        Ok(found)
    }

    /// What says nothing of places is of the paper's first one.
    fn place(&self, meant: &Meant) -> Option<(usize, usize)> {
        let on = self.contenders() + 1;
        let said = meant.each.contains(&on) || meant.only.iter().any(|(dim, _)| *dim == on);
        (!said).then_some((on, 0))
    }

    /// That every dimension is either gone through or stands at one value.
    fn decided<T>(&self, at: &Spanned<T>, meant: &Meant, how: &str) -> Result<(), Problem> {
        for (n, dim) in self.dims.iter().enumerate() {
            let allowed = |value: &usize| {
                meant
                    .only
                    .iter()
                    .all(|(of, only)| *of != n || only.contains(value))
            };
            let left = (0..dim.values.len()).filter(allowed).count();
            if left == 1 || (left > 1 && meant.each.contains(&n)) {
                continue;
            }
            let (name, key) = (&dim.name, dim.values.first().map_or("", |value| &value.key));
            let fix = match name.as_str() {
                "contender" => format!(
                    "{how}, or give `of = \"{key}\"` or `only = {{ contender = \"{key}\" }}`"
                ),
                "on" => format!("{how}, or give `on = \"{key}\"`"),
                _ => format!("{how}, or give `only = {{ {name} = \"{key}\" }}`"),
            };
            return Err(self.context.problem(
                at,
                format!("of `{name}`, {left} values are meant here"),
                fix,
            ));
        }
        Ok(())
    }

    fn fixed(&self, of: Option<&Text>, on: Option<&Text>) -> Result<Vec<(usize, usize)>, Problem> {
        let contenders = self.contenders();
        let named = of
            .map(|of| (contenders, of))
            .into_iter()
            .chain(on.map(|on| (contenders + 1, on)));
        named
            .map(|(dim, key)| Ok((dim, self.value(dim, key.get_ref(), key)?)))
            .collect()
    }

    /// What something is a ratio to: a contender or a place.
    fn over(
        &self,
        over: Option<&Text>,
        over_on: Option<&Text>,
    ) -> Result<Option<(usize, usize)>, Problem> {
        if let (Some(_), Some(second)) = (over, over_on) {
            return Err(self.context.problem(
                second,
                "a ratio is to another contender or to another place",
                "leave one of them out",
            ));
        }
        Ok(self.fixed(over, over_on)?.first().copied())
    }

    pub fn figure(&self, at: &Spanned<written::Figure>) -> Result<Figure, Problem> {
        let context = self.context;
        let figure = at.get_ref();
        let mut only = self.only(&figure.only)?;
        let fixed = self.fixed(figure.of.as_ref(), figure.on.as_ref())?;
        only.extend(fixed.into_iter().map(|(dim, value)| (dim, vec![value])));
        let mut meant = Meant {
            only,
            each: self.braces(&figure.key)?,
        };
        let place = self.place(&meant);
        meant
            .only
            .extend(place.map(|(on, first)| (on, vec![first])));
        let take = figure
            .take
            .as_ref()
            .map(|take| self.take(take))
            .transpose()?;
        if take.is_none() {
            self.decided(&figure.key, &meant, "name it in braces in the key")?;
        }
        if let Some(what) = &figure.what {
            self.braces(what)?;
        }
        let over = self.over(figure.over.as_ref(), figure.over_on.as_ref())?;
        let measure = context.measure(&figure.value)?;
        let also = figure.also.iter().map(|text| context.measure(text));
        let also: Vec<Measure> = also.collect::<Result<_, _>>()?;
        if let (None, Some(stray)) = (take, figure.also.first()) {
            return Err(context.problem(
                stray,
                "one figure of several measures?",
                "say which of them it is, as `take = \"max\"`",
            ));
        }
        if let (Some(Take::Together), Some(at), None) = (take, &figure.take, measure.pooled()) {
            return Err(context.problem(
                at,
                "only what is `pooled` is of all runs together",
                "write the measure with `pooled`, or `take = \"mean\"`",
            ));
        }
        Ok(Figure {
            key: figure.key.get_ref().clone(),
            what: figure.what.as_ref().map(|what| what.get_ref().clone()),
            judged: self.judged(figure, &measure, over)?,
            scale: self.scale(figure, over)?,
            take,
            also,
            paper: figure.paper.clone(),
            least: figure.least.unwrap_or(0.0),
            measure,
            meant,
            over,
        })
    }

    /// What is taken of several values.
    fn take(&self, take: &Text) -> Result<Take, Problem> {
        let known = [
            ("max", Take::Max),
            ("min", Take::Min),
            ("mean", Take::Mean),
            ("together", Take::Together),
        ];
        let found = known.iter().find(|(name, _)| name == take.get_ref());
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        found.map(|(_, take)| *take).ok_or_else(|| {
            self.context.source.unknown_name(
                take.span(),
                "way to take several values",
                take.get_ref(),
                &names,
            )
        })
    }

    /// What is made of a value or a ratio.
    fn scale(
        &self,
        figure: &written::Figure,
        over: Option<(usize, usize)>,
    ) -> Result<Scale, Problem> {
        let Some(percent) = &figure.percent else {
            return Ok(Scale::Times(figure.times.unwrap_or(1.0)));
        };
        if figure.times.is_some() {
            let fix = "remove `times`, or `percent`";
            return Err(self
                .context
                .problem(percent, "percent are a hundred times already", fix));
        }
        match (percent.get_ref().as_str(), over) {
            (_, None) => Err(self.context.problem(
                percent,
                "percent of what?",
                "give `over` or `over_on`: what it is compared with",
            )),
            ("less", _) => Ok(Scale::PercentLess),
            ("more", _) => Ok(Scale::PercentMore),
            (other, _) => Err(self.context.source.unknown_name(
                percent.span(),
                "percent",
                other,
                &["less", "more"],
            )),
        }
    }

    /// How a figure is judged, and whether all that this takes is there.
    fn judged(
        &self,
        figure: &written::Figure,
        measure: &Measure,
        over: Option<(usize, usize)>,
    ) -> Result<Judged, Problem> {
        let context = self.context;
        let stray = |margin: &Spanned<f64>| {
            context.problem(
                margin,
                "a margin is for equivalence, and between 0 and 1",
                "write `judge = \"equivalence\"` and `margin = 0.05` without `at_least` and `at_most`",
            )
        };
        let Some(judge) = &figure.judge else {
            return match &figure.margin {
                Some(margin) => Err(stray(margin)),
                None => self.aim(figure).map(Judged::Value),
            };
        };
        if let Some(stray) = figure.take.as_ref().or(figure.percent.as_ref()) {
            return Err(context.problem(
                stray,
                format!("`judge = \"{}\"` is of one value as it is", judge.get_ref()),
                "remove this line, or `judge`",
            ));
        }
        let aims = figure.at_least.as_ref().or(figure.at_most.as_ref());
        match (judge.get_ref().as_str(), &figure.margin) {
            ("equivalence", None) => Err(context.problem(
                judge,
                "equivalence within what?",
                "give `margin = 0.05` for 5 %",
            )),
            ("equivalence", _) if over.is_none() => Err(context.problem(
                judge,
                "equivalent to what?",
                "give `over` or `over_on`: what it is a ratio to",
            )),
            ("equivalence", _) if measure.pooled().is_some() => Err(context.problem(
                judge,
                "what is taken of all seeds together has no pairs of the same seed",
                "write the measure without `pooled`, or give `at_least` or `at_most` instead",
            )),
            ("equivalence", Some(margin))
                if aims.is_none() && (0.0..1.0).contains(margin.get_ref()) =>
            {
                Ok(Judged::Interval(TargetRange::Within(
                    1.0 - margin.get_ref(),
                    1.0 + margin.get_ref(),
                )))
            }
            ("equivalence", Some(margin)) => Err(stray(margin)),
            ("less", _) if over.is_none() => Err(context.problem(
                judge,
                "less than what?",
                "give `over` or `over_on`: what it is compared with",
            )),
            ("less", margin) => match margin.as_ref().or(aims) {
                None => Ok(Judged::Less),
                Some(aim) => Err(context.problem(
                    aim,
                    "whether it is less is all that is aimed at",
                    "remove this line, or `judge`",
                )),
            },
            (other, _) => {
                let known = ["equivalence", "less"];
                Err(context
                    .source
                    .unknown_name(judge.span(), "way to judge", other, &known))
            }
        }
    }

    /// What is aimed at of a value.
    fn aim(&self, figure: &written::Figure) -> Result<Option<TargetRange>, Problem> {
        Ok(match (&figure.at_least, &figure.at_most) {
            (Some(least), Some(most)) if least.get_ref() <= most.get_ref() => {
                Some(TargetRange::Within(*least.get_ref(), *most.get_ref()))
            }
            (Some(least), Some(_)) => {
                return Err(self.context.problem(
                    least,
                    "nothing is at least this and at most less",
                    "exchange the two",
                ));
            }
            (Some(least), None) => Some(TargetRange::AtLeast(*least.get_ref())),
            (None, Some(most)) => Some(TargetRange::AtMost(*most.get_ref())),
            (None, None) => None,
        })
    }

    pub fn table(&self, at: &Spanned<written::Table>) -> Result<Table, Problem> {
        let table = at.get_ref();
        let rows: Vec<usize> = table
            .rows
            .iter()
            .map(|row| self.dim(row))
            .collect::<Result<_, _>>()?;
        let across = table
            .across
            .as_ref()
            .map(|across| self.dim(across))
            .transpose()?;
        let meant = Meant {
            only: self.only(&table.only)?,
            each: self.braces(&table.title)?,
        };
        let mut columns = Vec::new();
        for column in &table.columns {
            let measure = self.context.measure(&column.value)?;
            let mut fixed = self.fixed(column.of.as_ref(), column.on.as_ref())?;
            let mut whole = meant.clone();
            whole.each.extend(rows.iter().chain(&across).copied());
            whole
                .only
                .extend(fixed.iter().map(|(dim, value)| (*dim, vec![*value])));
            if let Some((on, first)) = self.place(&whole) {
                fixed.push((on, first));
                whole.only.push((on, vec![first]));
            }
            self.decided(&column.value, &whole, "name it in `rows`")?;
            columns.push(Column {
                heading: column
                    .heading
                    .clone()
                    .unwrap_or_else(|| measure.name.clone()),
                digits: column.digits.min(9),
                times: column.times,
                over: self.over(column.over.as_ref(), column.over_on.as_ref())?,
                measure,
                fixed,
            });
        }
        Ok(Table {
            title: table.title.get_ref().clone(),
            meant,
            rows,
            across,
            columns,
        })
    }

    pub fn chart(&self, at: &Spanned<written::Chart>) -> Result<Chart, Problem> {
        let context = self.context;
        let chart = at.get_ref();
        let x = match chart.x.get_ref().as_str() {
            "delay" => X::Delay,
            "time" => X::Time,
            _ => X::Dim(self.dim(&chart.x)?),
        };
        if let X::Dim(dim) = x
            && let Some(nowhere) = self
                .dims
                .get(dim)
                .and_then(|dim| dim.values.iter().find(|value| value.x.is_none()))
        {
            return Err(context.problem(
                &chart.x,
                format!("`{}` has no place on an axis", nowhere.key),
                "give its cell a number `x = …`, or values that are numbers or quantities of one kind, as 10mbit, 20ms, 64kB or 1%",
            ));
        }
        let measure = match (x, &chart.value) {
            (X::Dim(_), Some(value)) => Some(context.measure(value)?),
            (X::Dim(_), None) => {
                return Err(context.problem(
                    &chart.x,
                    "nothing is drawn over it",
                    "give a `value`, such as \"utilisation\"",
                ));
            }
            (_, Some(value)) => {
                return Err(context.problem(
                    value,
                    "what is drawn over `delay` or `time` is known",
                    "remove it",
                ));
            }
            (_, None) => None,
        };
        let lines = chart
            .lines
            .as_ref()
            .map(|lines| self.dim(lines))
            .transpose()?;
        let lines = lines.unwrap_or(self.contenders());
        let mut pictures = Meant {
            only: self.only(&chart.only)?,
            each: self.braces(&chart.caption)?,
        };
        let panels = self.braces(&chart.title)?;
        let mut whole = pictures.clone();
        whole.each.extend(&panels);
        match x {
            X::Dim(dim) => whole.each.extend([dim, lines]),
            X::Delay => whole.each.push(lines),
            X::Time => {}
        }
        if let Some((on, first)) = self.place(&whole) {
            pictures.only.push((on, vec![first]));
            whole.only.push((on, vec![first]));
        }
        self.decided(
            &chart.caption,
            &whole,
            "name it in braces in the title or the caption",
        )?;
        let own = match x {
            X::Dim(dim) => self
                .dims
                .get(dim)
                .map_or(String::new(), |dim| dim.heading.replace('\n', " ")),
            X::Delay => "queueing delay, µs".to_owned(),
            X::Time => "time".to_owned(),
        };
        Ok(Chart {
            caption: chart.caption.get_ref().clone(),
            title: chart.title.get_ref().clone(),
            x_label: chart.x_label.clone().unwrap_or(own),
            log: chart.log,
            times: chart.times,
            range: chart.y_to.map(|to| (chart.y_from.unwrap_or(0.0), to)),
            pictures,
            panels,
            x,
            measure,
            lines,
        })
    }
}
