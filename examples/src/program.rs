//! The `main` function of an example: help, options, errors and exit codes.

use crate::options::{Common, HELP, Parsed};
use lexopt::{Arg, Parser};
use std::process::ExitCode;
use teeny_core::Result;

/// An example program: its description and its options.
///
/// # Example
/// ```no_run
/// use examples::{Common, Parsed, Program, options::at_least_one};
/// use lexopt::{Parser, ValueExt};
/// use teeny_core::{DType, Result, Tensor};
///
/// const PROGRAM: Program = Program {
///     about: "Draws random numbers.",
///     options: "  --count N        how many [3]\n",
///     without: &["data", "load", "resume"],
/// };
///
/// struct Options {
///     count: usize,
/// }
///
/// fn main() -> std::process::ExitCode {
///     PROGRAM.main(Options { count: 3 }, option, run)
/// }
///
/// fn option(options: &mut Options, name: &str, parser: &mut Parser) -> Parsed<bool> {
///     match name {
///         "count" => options.count = parser.value()?.parse_with(at_least_one)?,
///         _ => return Ok(false),
///     }
///     Ok(true)
/// }
///
/// fn run(options: &Options, common: &Common) -> Result<()> {
///     println!("{}", Tensor::randn((options.count,), DType::F32, &common.device()?)?);
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The purpose of the program in one line.
    pub about: &'static str,
    /// The help lines of its options, each of the form `  --name VALUE    text\n`. A line about a
    /// common option replaces the common line.
    pub options: &'static str,
    /// The common options that it does not use.
    pub without: &'static [&'static str],
}

impl Program {
    /// The help text.
    pub fn usage(&self) -> String {
        let replaced = |name: &str| {
            self.options.lines().any(|line| {
                line.trim_start().strip_prefix("--").and_then(|l| l.split(' ').next()) == Some(name)
            })
        };
        let mut text = format!("{}\n\n{}", self.about, self.options);
        HELP.iter()
            .filter(|(name, _)| !self.without.contains(name) && !replaced(name))
            .for_each(|(_, line)| text += line);
        text
    }

    /// Parses the command line in `parser`. `take` stores the program's options in `options`.
    /// Returns `None` for `--help`.
    ///
    /// `take` gets the name (without dashes) of an option that is not a common one, and returns
    /// false if it does not know it.
    ///
    /// # Errors
    /// If an option is unknown, or its value is missing or invalid.
    pub fn parse<O>(
        &self,
        mut options: O,
        mut take: impl FnMut(&mut O, &str, &mut Parser) -> Parsed<bool>,
        mut parser: Parser,
    ) -> Parsed<Option<(O, Common)>> {
        let mut common = Common::default();
        while let Some(arg) = parser.next()? {
            let name = match arg {
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Long(name) => name.to_string(),
                other => return Err(other.unexpected()),
            };
            let known =
                !self.without.contains(&name.as_str()) && common.take(&name, &mut parser)?;
            if !known && !take(&mut options, &name, &mut parser)? {
                return Err(Arg::Long(&name).unexpected());
            }
        }
        Ok(Some((options, common)))
    }

    /// The `main` function of the program: parses the command line, prints the help or an error, or
    /// runs. The exit code is 0 after a success, 1 after an error and 2 if the command line is
    /// invalid.
    pub fn main<O>(
        &self,
        options: O,
        take: impl FnMut(&mut O, &str, &mut Parser) -> Parsed<bool>,
        run: impl FnOnce(&O, &Common) -> Result<()>,
    ) -> ExitCode {
        let (options, common) = match self.parse(options, take, Parser::from_env()) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => {
                print!("{}", self.usage());
                return ExitCode::SUCCESS;
            }
            Err(error) => {
                eprintln!("{error}\n\n{}", self.usage());
                return ExitCode::from(2);
            }
        };
        let result = run(&options, &common);
        let ranks = common.ranks();
        if let Err(error) = &result {
            ranks.abort(error);
        }
        // a trace is useful after an error, too
        let finished = common.finish(result.is_err());
        let ended = ranks.finish();
        match result.and(finished).and(ended) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let rank = format!("rank {}: ", ranks.rank());
                eprintln!("{}error: {error}", if ranks.size() > 1 { &rank } else { "" });
                ExitCode::FAILURE
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{at_least_one, positive};
    use lexopt::ValueExt;
    use std::path::Path;

    const PROGRAM: Program = Program {
        about: "Counts.",
        options: "  --count N        how many
  --rate X         how fast
  --data FILE      what
",
        without: &["resume", "log"],
    };

    fn parse(args: &str) -> Parsed<Option<((usize, f64), Common)>> {
        let take = |options: &mut (usize, f64), name: &str, parser: &mut Parser| {
            match name {
                "count" => options.0 = parser.value()?.parse_with(at_least_one)?,
                "rate" => options.1 = parser.value()?.parse_with(positive)?,
                _ => return Ok(false),
            }
            Ok(true)
        };
        PROGRAM.parse((3, 0.5), take, Parser::from_args(args.split_whitespace()))
    }

    #[test]
    fn options_have_defaults_and_values() {
        let (options, common) = parse("").unwrap().unwrap();
        assert_eq!(
            (options, common.device.as_str(), common.seed, common.threads),
            ((3, 0.5), "auto", 1, None)
        );
        let (options, common) =
            parse("--count=7 --seed 4 --data x --rate 2 --threads 2").unwrap().unwrap();
        assert_eq!(
            (options, common.seed, common.data.as_deref(), common.threads),
            ((7, 2.0), 4, Some(Path::new("x")), Some(2))
        );
        assert!(parse("--seed 3 --help").unwrap().is_none() && parse("-h").unwrap().is_none());
    }

    #[test]
    fn invalid_options_are_errors() {
        for args in [
            "--rate nan",
            "--rate -1",
            "--rate inf",
            "--threads 0",
            "--count 0",
            "--seed x",
            "--bogus",
            "-x",
            "stray",
            "--save",
        ] {
            assert!(parse(args).is_err(), "{args}");
        }
        assert_eq!(
            parse("--resume x").unwrap_err().to_string(),
            "invalid option '--resume'",
            "an option that the program does not use"
        );
    }

    #[test]
    fn help_lists_every_option_once_and_nothing_else() {
        let usage = PROGRAM.usage();
        assert!(usage.starts_with("Counts.\n\n  --count N"), "{usage}");
        assert!(
            usage.contains("--data FILE      what") && usage.matches("--data").count() == 1,
            "{usage}"
        );
        assert!(
            usage.contains("--plot FILE")
                && !usage.contains("--resume")
                && !usage.contains("--log"),
            "{usage}"
        );
        for (name, line) in HELP {
            assert!(line.starts_with(&format!("  --{name} ")) && line.ends_with('\n'), "{line}");
            let value = if name == "graph" { "1.svg" } else { "1" };
            assert!(
                Common::default().take(name, &mut Parser::from_args([value])).is_ok(),
                "{name} is in the help but not known"
            );
        }
    }
}
