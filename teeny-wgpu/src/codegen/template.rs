//! The template engine of the shaders: `.wgsl` text with holes, conditions and unrolled loops.
//!
//! ```text
//! {{value}}                     the text, or the number, that was set as `value`
//! {{4 * i + 1}}                 an integer expression of numbers and loop variables: + - * / % ( )
//! {{names[i]}}                  element number i of the list that was set as `names`
//! #if flag, #if !flag           the lines up to #else or #endif, if the flag is true, or false
//! #for i in 0..N                the lines up to #endfor, once for each number
//! #for i in reversed 0..N       the same from N - 1 down
//! // comment                    stays in the file
//! ```
//!
//! Checked: a hole without a value, a value without a hole, a directive without its end and a
//! malformed expression are errors. Loops are unrolled where a GPU's compiler might not do it:
//! accumulators that must stay in registers, and axes whose number is part of the program.

use std::collections::BTreeMap;
use teeny_core::{Error, Result};

/// The value of a name in a template.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
    Flag(bool),
    List(Vec<String>),
}

/// A template and the values of its names.
pub(crate) struct Template {
    name: &'static str,
    source: &'static str,
    values: BTreeMap<String, Value>,
}

/// A line, or a directive with its lines.
enum Node<'a> {
    Line(usize, &'a str),
    If { line: usize, flag: &'a str, holds: bool, then: Vec<Node<'a>>, other: Vec<Node<'a>> },
    For { line: usize, variable: &'a str, reversed: bool, range: &'a str, body: Vec<Node<'a>> },
}

impl Template {
    pub fn new(name: &'static str, source: &'static str) -> Template {
        Template { name, source, values: BTreeMap::new() }
    }

    pub fn set(&mut self, name: impl Into<String>, value: Value) {
        self.values.insert(name.into(), value);
    }

    /// The text with all holes filled.
    ///
    /// # Errors
    /// If a hole has no value, a value no hole, or the template is malformed.
    pub fn render(&self) -> Result<String> {
        let lines: Vec<(usize, &str)> = self
            .source
            .lines()
            .enumerate()
            .map(|(i, line)| (i + 1, line.split("//").next().unwrap_or_default().trim_end()))
            .filter(|(_, line)| !line.is_empty())
            .collect();
        let mut rest = &lines[..];
        let nodes = self.parse(&mut rest)?;
        if let Some((line, text)) = rest.first() {
            return Err(self.error(*line, format!("`{}` has no beginning", text.trim())));
        }
        let mut names = Vec::new();
        mentioned(&nodes, &mut names);
        if let Some(name) = self.values.keys().find(|name| !names.contains(&name.as_str())) {
            return Err(self.error(0, format!("the template has no hole `{name}`")));
        }
        let mut text = String::new();
        self.write(&nodes, &mut Vec::new(), &mut text)?;
        Ok(text)
    }

    fn error(&self, line: usize, message: String) -> Error {
        Error::internal(format!("shader template {}:{line}: {message}", self.name))
    }

    /// The nodes up to the end of `rest` or a directive that ends a block.
    fn parse<'a>(&self, rest: &mut &[(usize, &'a str)]) -> Result<Vec<Node<'a>>> {
        let mut nodes = Vec::new();
        while let [(line, text), tail @ ..] = *rest {
            let (line, Some(directive)) = (*line, text.trim_start().strip_prefix('#')) else {
                nodes.push(Node::Line(*line, text));
                *rest = tail;
                continue;
            };
            let (word, argument) = directive.split_once(' ').unwrap_or((directive, ""));
            let argument = argument.trim();
            match word {
                "else" | "endif" | "endfor" => break,
                "if" => {
                    *rest = tail;
                    let then = self.parse(rest)?;
                    let mut other = Vec::new();
                    if self.ends(line, rest, &["else", "endif"])? == "else" {
                        other = self.parse(rest)?;
                        self.ends(line, rest, &["endif"])?;
                    }
                    let flag = argument.trim_start_matches('!');
                    let holds = flag.len() == argument.len();
                    nodes.push(Node::If { line, flag, holds, then, other });
                }
                "for" => {
                    *rest = tail;
                    let body = self.parse(rest)?;
                    self.ends(line, rest, &["endfor"])?;
                    let Some((variable, range)) = argument.split_once(" in ") else {
                        return Err(self.error(line, format!("`{text}` has no range")));
                    };
                    let range = range.trim();
                    let forward = range.strip_prefix("reversed ");
                    nodes.push(Node::For {
                        line,
                        variable: variable.trim(),
                        reversed: forward.is_some(),
                        range: forward.unwrap_or(range),
                        body,
                    });
                }
                _ => return Err(self.error(line, format!("unknown directive `#{word}`"))),
            }
        }
        Ok(nodes)
    }

    /// Takes the directive that ends the block of line `begin`, one of `words`.
    fn ends<'a>(
        &self,
        begin: usize,
        rest: &mut &[(usize, &'a str)],
        words: &[&str],
    ) -> Result<&'a str> {
        let word = rest.first().map(|(_, text)| text.trim().trim_start_matches('#'));
        match word.filter(|word| words.contains(word)) {
            Some(word) => {
                *rest = &rest[1..];
                Ok(word)
            }
            None => Err(self.error(begin, format!("the block has no #{}", words[words.len() - 1]))),
        }
    }

    fn write(
        &self,
        nodes: &[Node<'_>],
        variables: &mut Vec<(String, i64)>,
        text: &mut String,
    ) -> Result<()> {
        for node in nodes {
            match node {
                Node::Line(line, source) => {
                    let mut rest = *source;
                    while let Some((before, hole)) = rest.split_once("{{") {
                        let Some((hole, after)) = hole.split_once("}}") else {
                            return Err(self.error(*line, "a hole has no end".to_string()));
                        };
                        text.push_str(before);
                        text.push_str(&self.fill(*line, hole.trim(), variables)?);
                        rest = after;
                    }
                    text.push_str(rest);
                    text.push('\n');
                }
                Node::If { line, flag, holds, then, other } => {
                    let Some(Value::Flag(value)) = self.values.get(*flag) else {
                        return Err(self.error(*line, format!("`{flag}` has no value")));
                    };
                    let branch = if value == holds { then } else { other };
                    self.write(branch, variables, text)?;
                }
                Node::For { line, variable, reversed, range, body } => {
                    let Some((low, high)) = range.split_once("..") else {
                        return Err(self.error(*line, format!("`{range}` is not a range")));
                    };
                    let low = self.number(*line, low, variables)?;
                    let high = self.number(*line, high, variables)?;
                    for i in low..high {
                        let i = if *reversed { low + high - 1 - i } else { i };
                        variables.push((variable.to_string(), i));
                        self.write(body, variables, text)?;
                        variables.pop();
                    }
                }
            }
        }
        Ok(())
    }

    /// The text of a hole.
    fn fill(&self, line: usize, hole: &str, variables: &[(String, i64)]) -> Result<String> {
        if let Some((list, index)) = hole.strip_suffix(']').and_then(|h| h.split_once('[')) {
            let Some(Value::List(values)) = self.values.get(list) else {
                return Err(self.error(line, format!("`{list}` has no value")));
            };
            let at = self.number(line, index, variables)?;
            let value = usize::try_from(at).ok().and_then(|at| values.get(at));
            return value
                .cloned()
                .ok_or_else(|| self.error(line, format!("`{list}` has no element {at}")));
        }
        match self.values.get(hole) {
            Some(Value::Text(text)) => Ok(text.clone()),
            _ => self.number(line, hole, variables).map(|n| n.to_string()),
        }
    }

    /// The value of an integer expression.
    fn number(&self, line: usize, text: &str, variables: &[(String, i64)]) -> Result<i64> {
        let lookup = |name: &str| {
            let variable = variables.iter().rev().find(|(v, _)| v == name).map(|(_, n)| *n);
            variable.or(match self.values.get(name) {
                Some(Value::Number(n)) => Some(*n),
                _ => None,
            })
        };
        let mut parser = Expression { rest: text.trim(), lookup: &lookup };
        let value = parser.sum().map_err(|message| self.error(line, message))?;
        if parser.rest.is_empty() {
            Ok(value)
        } else {
            Err(self.error(line, format!("`{text}` is not an expression")))
        }
    }
}

/// The names that a template mentions, whether or not the lines are reached.
fn mentioned<'a>(nodes: &[Node<'a>], names: &mut Vec<&'a str>) {
    let mut expression = |text: &'a str| {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        names.extend(words.filter(|w| !w.is_empty()));
    };
    for node in nodes {
        match node {
            Node::Line(_, text) => {
                text.split("{{")
                    .skip(1)
                    .filter_map(|hole| hole.split_once("}}"))
                    .for_each(|(hole, _)| expression(hole));
            }
            Node::If { flag, .. } => expression(flag),
            Node::For { range, .. } => expression(range),
        }
    }
    for node in nodes {
        match node {
            Node::Line(..) => {}
            Node::If { then, other, .. } => {
                mentioned(then, names);
                mentioned(other, names);
            }
            Node::For { body, .. } => mentioned(body, names),
        }
    }
}

/// A parser of integer expressions by recursive descent.
struct Expression<'a> {
    rest: &'a str,
    lookup: &'a dyn Fn(&str) -> Option<i64>,
}

impl Expression<'_> {
    fn take(&mut self, symbols: &str) -> Option<char> {
        let symbol = self.rest.chars().next().filter(|c| symbols.contains(*c))?;
        self.rest = self.rest[1..].trim_start();
        Some(symbol)
    }

    fn sum(&mut self) -> std::result::Result<i64, String> {
        let mut value = self.product()?;
        while let Some(sign) = self.take("+-") {
            let other = self.product()?;
            value = if sign == '+' { value + other } else { value - other };
        }
        Ok(value)
    }

    fn product(&mut self) -> std::result::Result<i64, String> {
        let mut value = self.factor()?;
        while let Some(sign) = self.take("*/%") {
            let other = self.factor()?;
            value = match sign {
                '*' => value * other,
                _ if other == 0 => return Err("division by zero".to_string()),
                '/' => value / other,
                _ => value % other,
            };
        }
        Ok(value)
    }

    fn factor(&mut self) -> std::result::Result<i64, String> {
        if self.take("(").is_some() {
            let value = self.sum()?;
            return match self.take(")") {
                Some(_) => Ok(value),
                None => Err("`(` has no `)`".to_string()),
            };
        }
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        let number = word.parse().ok().or_else(|| (self.lookup)(word));
        number.ok_or_else(|| format!("`{word}` has no value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &'static str, values: &[(&str, Value)]) -> Result<String> {
        let mut template = Template::new("test.wgsl", source);
        values.iter().for_each(|(name, value)| template.set(*name, value.clone()));
        template.render()
    }

    #[track_caller]
    fn refused(source: &'static str, values: &[(&str, Value)], message: &str) {
        let error = render(source, values).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }

    #[test]
    fn holes_conditions_and_loops_are_filled() {
        let source = include_str!("template_sample.wgsl");
        let names = Value::List(vec!["a".to_string(), "b".to_string()]);
        let text = render(
            source,
            &[
                ("n", Value::Number(4)),
                ("wide", Value::Flag(true)),
                ("type", Value::Text("f32".to_string())),
                ("names", names),
            ],
        )
        .unwrap();
        assert_eq!(
            text,
            "const N = 4u;\nlet x: f32;\ns0_1 = b[3];\ns0_0 = a[3];\ns1_1 = b[2];\ns1_0 = a[2];\n"
        );
    }

    #[test]
    fn a_hole_without_a_value_is_an_error() {
        refused("a\n{{missing}}\n", &[], "test.wgsl:2: `missing` has no value");
        refused("#if missing\n#endif\n", &[], "test.wgsl:1: `missing` has no value");
        refused("{{list[0]}}\n", &[], "`list` has no value");
        refused("{{list[1]}}\n", &[("list", Value::List(Vec::new()))], "`list` has no element 1");
        // A flag is not a text, and a text is not a flag.
        refused("{{flag}}\n", &[("flag", Value::Flag(true))], "`flag` has no value");
    }

    #[test]
    fn a_value_without_a_hole_is_an_error() {
        let spare = [("spare", Value::Number(1))];
        refused("text\n// {{spare}}\n", &spare, "the template has no hole `spare`");
        // A hole in a branch that is not taken is a hole.
        let flag = ("flag", Value::Flag(false));
        let source = "#if flag\n{{spare}}\n#endif\n";
        assert_eq!(render(source, &[spare[0].clone(), flag]).unwrap(), "");
    }

    #[test]
    fn malformed_templates_are_errors() {
        refused(
            "#if flag\n",
            &[("flag", Value::Flag(true))],
            "test.wgsl:1: the block has no #endif",
        );
        refused("#for i in 0..2\n", &[], "the block has no #endfor");
        refused("#endif\n", &[], "`#endif` has no beginning");
        refused("#for i\n#endfor\n", &[], "has no range");
        refused("#for i in 3\n#endfor\n", &[], "is not a range");
        refused("#unless x\n", &[], "unknown directive `#unless`");
        refused("{{1 +\n", &[], "a hole has no end");
        refused("{{1 +}}\n", &[], "has no value");
        refused("{{(1}}\n", &[], "`(` has no `)`");
        refused("{{1 2}}\n", &[], "is not an expression");
        refused("{{1 / 0}}\n", &[], "division by zero");
    }
}
