//! The program `serve` as a user runs it.

use crate::common::*;
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serve"));
    command.args(args).args(["--device", "cpu"]);
    command
}

#[track_caller]
fn refused(output: Output, part: &str) {
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.lines().next().unwrap().contains(part), "{text}");
}

#[test]
fn options_and_models_that_do_not_fit_are_refused() {
    let (decoder, encoder, other) =
        (decoder_folder("program"), encoder_folder("program-encoder"), Folder::new("other"));
    fs::write(other.at("config.json"), r#"{"model_type": "t5"}"#).unwrap();
    let (decoder, encoder, other) = (decoder.at(""), encoder.at(""), other.at(""));
    for (args, part) in [
        (vec!["--bogus"], "invalid option '--bogus'"),
        (vec!["--save", "x"], "invalid option '--save'"),
        (vec![], "no model"),
        (vec!["--model", &other], "no decoder of model_type \"t5\""),
        (vec!["--model", "/nothing/here"], "/nothing/here"),
        (vec!["--model", &encoder, "--embeddings", &encoder], "both encoders"),
        (vec!["--embeddings", &decoder], "no encoder of model_type \"phi3\""),
        (vec!["--model", &decoder, "--address", "nowhere"], "invalid socket address"),
        (vec!["--model", &decoder, "--queue", "0"], "at least one"),
        (vec!["--model", &decoder, "--dtype", "i8"], "f32"),
    ] {
        refused(command(&args).output().unwrap(), part);
    }
    let help = command(&["--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("--queue N") && help.contains("--seed N"), "{help}");
    assert!(!help.contains("--load") && !help.contains("--lazy"), "{help}");
}

/// The program with its standard output and the address that it printed.
#[cfg(unix)]
fn started(args: &[&str]) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let args = [args, &["--address", "127.0.0.1:0"]].concat();
    let mut child = command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let (mut line, mut seen) = (String::new(), String::new());
    while !line.starts_with("http://") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "{seen}");
        seen += &line;
    }
    let address = line.trim().strip_prefix("http://").unwrap().to_string();
    (child, out, address)
}

#[cfg(unix)]
#[test]
fn the_program_serves_until_a_signal() {
    use std::io::{Read, Write};
    let (decoder, encoder) = (decoder_folder("signal"), encoder_folder("signal-encoder"));
    for signal in ["TERM", "INT"] {
        let args = ["--model", &decoder.at(""), "--embeddings", &encoder.at(""), "--threads", "2"];
        let (mut child, mut out, address) = started(&args);
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let body = json!({"prompt": "a", "max_tokens": 1500, "stream": true}).to_string();
        let length = body.len();
        let head = "POST /v1/completions HTTP/1.1\r\nHost: x";
        write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        read_until(&mut stream, "data: ");
        let kill = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
        read_until(&mut stream, "data: [DONE]\n\n");
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success(), "{text}");
        assert!(text.ends_with("stopped\n"), "{text}");
    }
}
