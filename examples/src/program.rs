//! The `main` function of an example: help, options, errors and exit codes.

use crate::options::{COMMON, Common, Opt, Parsed, take};
use crate::output;
use lexopt::{Arg, Parser};
use std::process::ExitCode;
use teeny_core::Result;

/// An example program: its description and its options.
///
/// # Example
/// ```no_run
/// use examples::{Common, Program, opt, options::at_least_one};
/// use teeny_core::{DType, Result, Tensor};
///
/// const PROGRAM: Program<Options> = Program {
///     about: "Draws random numbers.",
///     options: &[opt("count N", "how many [3]", |o, v| v.with(&mut o.count, at_least_one))],
///     without: &["data", "load", "resume"],
/// };
///
/// struct Options {
///     count: usize,
/// }
///
/// fn main() -> std::process::ExitCode {
///     PROGRAM.main(Options { count: 3 }, run)
/// }
///
/// fn run(options: &Options, common: &Common) -> Result<()> {
///     println!("{}", Tensor::randn((options.count,), DType::F32, &common.device()?)?);
///     Ok(())
/// }
/// ```
pub struct Program<O: 'static> {
    /// The purpose of the program in one line.
    pub about: &'static str,
    /// Its options, those first in the help text.
    pub options: &'static [Opt<O>],
    /// The common options that it does not use.
    pub without: &'static [&'static str],
}

impl<O> Program<O> {
    /// The help text.
    pub fn usage(&self) -> String {
        let hidden = |name: &str| {
            self.without.contains(&name) || self.options.iter().any(|own| own.name() == name)
        };
        let own = self.options.iter().map(Opt::lines);
        let common = COMMON.iter().filter(|row| !hidden(row.name())).map(Opt::lines);
        format!("{}\n\n{}", self.about, own.chain(common).collect::<String>())
    }

    /// Parses the command line in `parser`. `options` has the defaults. `None` stands for `--help`.
    ///
    /// # Errors
    /// If an option is unknown, or its value is missing or invalid.
    pub fn parse(&self, mut options: O, mut parser: Parser) -> Parsed<Option<(O, Common)>> {
        let mut common = Common::default();
        while let Some(arg) = parser.next()? {
            let name = match arg {
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Long(name) => name.to_string(),
                Arg::Value(text) => {
                    let Some(row) = self.options.iter().find(|row| row.is_argument()) else {
                        return Err(Arg::Value(text).unexpected());
                    };
                    take(self.options, &mut options, row.name(), &mut Parser::from_args([text]))?;
                    continue;
                }
                other => return Err(other.unexpected()),
            };
            let known = !self.without.contains(&name.as_str())
                && take(&COMMON, &mut common, &name, &mut parser)?;
            if !known && !take(self.options, &mut options, &name, &mut parser)? {
                return Err(Arg::Long(&name).unexpected());
            }
        }
        Ok(Some((options, common)))
    }

    /// The `main` function of the program: parses the command line, prints the help or an error, or
    /// runs. The exit code is 0 after a success, 1 after an error and 2 if the command line is
    /// invalid.
    pub fn main(&self, options: O, run: impl FnOnce(&O, &Common) -> Result<()>) -> ExitCode {
        let (options, common) = match self.parse(options, Parser::from_env()) {
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
        output::only_prints(["save", "resume"].iter().all(|name| self.without.contains(name)));
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
    use crate::options::{about, at_least_one, opt, positive};
    use std::path::Path;

    const PROGRAM: Program<(usize, f64)> = Program {
        about: "Counts.",
        options: &[
            opt("count N", "how many", |o, v| v.with(&mut o.0, at_least_one)),
            opt("rate X", "how fast", |o, v| v.with(&mut o.1, positive)),
            about("data FILE", "what"),
            opt("N", "the same without a name", |o, v| v.with(&mut o.0, at_least_one)),
            opt("a-very-long-name N", "one line\nand another", |o, v| {
                v.with(&mut o.0, at_least_one)
            }),
        ],
        without: &["resume", "log"],
    };

    fn parse(args: &str) -> Parsed<Option<((usize, f64), Common)>> {
        PROGRAM.parse((3, 0.5), Parser::from_args(args.split_whitespace()))
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
        assert_eq!(parse("9 --rate 2").unwrap().unwrap().0, (9, 2.0));
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
            "0",
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
        let long = format!("\n  --a-very-long-name N\n{0:19}one line\n{0:19}and another\n", "");
        assert!(usage.contains(&long), "{usage}");
        for row in &COMMON {
            let (name, lines) = (row.name(), row.lines());
            assert!(lines.starts_with(&format!("  --{name} ")) && lines.ends_with('\n'), "{lines}");
            let value = if name == "graph" { "1.svg" } else { "1" };
            let mut parser = Parser::from_args([value]);
            assert!(take(&COMMON, &mut Common::default(), name, &mut parser).is_ok(), "{name}");
        }
    }
}
