//! Chat templates: the texts of transformers (`golden/chat.json`, by `make_chat.py`), and what is
//! refused.

use crate::common::*;
use std::fs;
use teeny_models::{ChatOptions, ChatTemplate, Message};

#[test]
fn conversations_have_the_texts_of_transformers() {
    let golden = parse(include_str!("golden/chat.json"));
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() >= 60);
    for case in cases {
        let name = case["template"].as_str().unwrap();
        let source = golden["templates"][name].as_str().unwrap();
        let template = ChatTemplate::new(source).unwrap();
        let template = template.with_token("bos_token", "<s>").with_token("eos_token", "</s>");
        let prompt = case["prompt"].as_bool().unwrap();
        let mut options = ChatOptions::new().with_add_generation_prompt(prompt);
        for (name, value) in case["variables"].as_object().unwrap() {
            options = options.with_variable(name, value.as_str().unwrap());
        }
        let messages = case["messages"].as_str().unwrap();
        let text = template.render_json(messages, &options);
        match case["text"].as_str() {
            Some(want) => assert_eq!(text.unwrap(), want, "{name} of {messages}"),
            None => assert!(text.is_err(), "{name} of {messages}: {text:?}"),
        }
        // the same by messages of this crate, where they can say it
        let parsed = parse(messages);
        let parsed = parsed.as_array().unwrap();
        if parsed.iter().all(|m| m["content"].is_string() && m["tool_calls"].is_null()) {
            let text_of = |m: &serde_json::Value, key: &str| m[key].as_str().unwrap().to_string();
            let messages: Vec<Message> = parsed
                .iter()
                .map(|m| Message::new(text_of(m, "role"), text_of(m, "content")))
                .collect();
            assert_eq!(template.render(&messages, &options).ok().as_deref(), case["text"].as_str());
        }
    }
}

/// Published templates ask so before they take the length of the tools, which may be None.
#[test]
fn none_is_not_iterable_and_an_undefined_value_is() {
    let source = "{% for x in [none, nothing, 'a', [], {}, 1, tools] %}\
                  {{ 1 if x is iterable else 0 }}{% endfor %}\
                  {% if tools is iterable and tools | length > 0 %}tools{% endif %}";
    let template = ChatTemplate::new(source).unwrap();
    // what jinja2 3.1 prints, for tools that are None
    assert_eq!(template.render(&[], &ChatOptions::new()).unwrap(), "0111100");
}

/// The texts are from jinja2 3.1.6 with `trim_blocks` and `lstrip_blocks`.
#[test]
fn filters_take_their_arguments_by_name() {
    for (source, want) in [
        ("{{ none | default('x', boolean=true) }}", "x"),
        ("{{ '' | default('x', boolean=True) }}", "x"),
        ("{{ '' | default('x', boolean=false) }}", ""),
        ("{{ '' | default('x') }}", ""),
        ("{{ nothing | default(default_value='x') }}", "x"),
        ("{{ nothing | default(default_value='x', boolean=true) }}", "x"),
        ("{{ false | d('x', boolean=true) }}", "x"),
        ("{{ 0 | d(boolean=true, default_value='x') }}", "x"),
        ("{{ none | default(boolean=true) | length }}", "0"),
        ("{{ 'y' | default('x', boolean=true) }}", "y"),
        ("{{ '--a-' | trim(chars='-') }}", "a"),
        ("{{ [1, 2, 3] | batch(linecount=2, fill_with=0) | list }}", "[[1, 2], [3, 0]]"),
        ("{{ [1, 2, 3] | batch(2, fill_with=0) | list }}", "[[1, 2], [3, 0]]"),
        ("{{ [1, 2, 3] | slice(slices=2) | list }}", "[[1, 2], [3]]"),
        ("{{ 'a\nb' | indent(width=2) }}", "a\n  b"),
        ("{{ 'a\nb' | indent(2, first=true) }}", "  a\n  b"),
        ("{{ '{\n' | indent(4, first=true) }}|", "    {\n|"),
        ("{{ 'a\n\nb\n' | indent }}|", "a\n\n    b\n|"),
        ("{{ {'k': 'é'} | tojson(true) }}", "{\"k\": \"\\u00e9\"}"),
        ("{{ ['é😀'] | tojson(ensure_ascii=true) }}", "[\"\\u00e9\\ud83d\\ude00\"]"),
        ("{{ {none: 1} | tojson }}", "{\"null\": 1}"),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ 1e-5 | string }}", "1e-05"),
        ("{% for x in ['a', {}, range(2), 1, none] %}{{ 1 if x is sequence }}{% endfor %}", "111"),
        ("{% set x = 1 %}{% generation %}{% set x = 2 %}{% endgeneration %}{{ x }}", "1"),
        ("{{ ['a', 'b'] | join(d='-') }}", "a-b"),
        ("{{ [{'k': 1}, {'k': 2}] | join('-', attribute='k') }}", "1-2"),
        ("{{ 'aaa' | replace('a', 'b', count=2) }}", "bba"),
        ("{{ 2.567 | round(precision=1) }}", "2.6"),
        ("{{ 2.567 | round(method='floor') }}", "2.0"),
        ("{{ 'x' | int(default=3) }}", "3"),
        ("{{ '11' | int(base=2) }}", "3"),
        ("{{ 'x' | float(default=1.5) }}", "1.5"),
        ("{{ [1, 2] | sum(start=3) }}", "6"),
        ("{{ [{'k': 1}, {'k': 2}] | sum(attribute='k') }}", "3"),
        ("{{ [2, 3, 1] | sort(reverse=true) | list }}", "[3, 2, 1]"),
        ("{{ [{'k': 1}, {}] | map(attribute='k', default=7) | list }}", "[1, 7]"),
    ] {
        let text = ChatTemplate::new(source).unwrap().render(&[], &ChatOptions::new());
        assert_eq!(text.unwrap_or_else(|e| panic!("{source}: {e}")), want, "{source}");
    }
    // as in Python
    for source in [
        "{{ '' | default('x', boolean=true, more=1) }}",
        "{{ '' | default('x', default_value='y') }}",
        "{{ '' | trim(more=1) }}",
    ] {
        assert!(ChatTemplate::new(source).unwrap().render(&[], &ChatOptions::new()).is_err());
    }
}

#[test]
fn numbers_and_lines_are_those_of_python_and_jinja() {
    let text = |source: &str, json: &str| {
        let options = ChatOptions::new().with_variable("x", json);
        ChatTemplate::new(source).unwrap().render(&[], &options).unwrap()
    };
    // by Python 3.11: repr(x), and json.dumps(x)
    for number in [
        "1e-07",
        "0.0001",
        "1e-05",
        "1000000000000000.0",
        "1e+16",
        "1.2345678901234568e+17",
        "0.1",
        "5e-324",
        "1.7976931348623157e+308",
        "-0.0",
        "2.5",
        "100.0",
        "7",
        "-3",
        "12345678901234567890",
    ] {
        assert_eq!(text("{{ x }} {{ x | tojson }}", number), format!("{number} {number}"));
    }
    assert_eq!(text("{{ [x * 10, 1] | tojson }}", "1e308"), "[Infinity, 1]");
    let options = ChatOptions::new().with_variable("x", "1".repeat(60).as_str());
    let error = ChatTemplate::new("{{ x }}").unwrap().render(&[], &options).unwrap_err();
    assert!(error.to_string().contains("is not a 128-bit number"), "{error}");
    assert_eq!(text("a\r\n{{ 1 }}\rb", "0"), "a\n1\nb");
    let template = ChatTemplate::new("{{ messages[0].reasoning_content }}").unwrap();
    let rendered = |json: &str| template.render_json(json, &ChatOptions::new()).unwrap();
    assert_eq!(rendered(r#"[{"role": "assistant", "reasoning": "hm"}]"#), "hm");
    assert_eq!(rendered(r#"[{"reasoning": "a", "reasoning_content": "b"}]"#), "b");
}

#[test]
fn errors_of_templates_name_their_cause() {
    for (source, parts) in [
        ("{{ messages | shout }}", &["unknown filter", "shout"][..]),
        ("{{ messages | map('shout') | list }}", &["unknown filter", "shout"]),
        ("{{ messages | select('loud') | list }}", &["unknown test", "loud"]),
        ("{{ messages | rejectattr('role', 'loud') | list }}", &["unknown test", "loud"]),
        ("{{ 1 is loud }}", &["unknown test", "loud"]),
        ("{{ shout(1) }}", &["unknown function", "shout"]),
        ("{{ 'a'.shout() }}", &["unknown method", "shout"]),
        ("{{ messages | tojson(shape=1) }}", &["shape"]),
    ] {
        let rendered = ChatTemplate::new(source)
            .and_then(|template| template.render(&[Message::user("x")], &ChatOptions::new()));
        let error = rendered.unwrap_err().to_string();
        parts.iter().for_each(|part| assert!(error.contains(part), "{source}: {error}"));
        let blames_messages = error.contains("the messages must be");
        assert!(!blames_messages && error.contains("help: "), "{source}: {error}");
    }
    // the template refuses the messages
    let template = ChatTemplate::new("{{ raise_exception('only two turns') }}").unwrap();
    let error = template.render(&[Message::user("x")], &ChatOptions::new()).unwrap_err();
    assert!(error.to_string().contains("the messages must be"), "{error}");
}

/// As transformers 5.24 passes them: the first of three names that has a value, under two of them.
#[test]
fn thoughts_of_messages_have_the_names_that_templates_read() {
    let template = ChatTemplate::new(
        "{{ messages[0].reasoning_content }},{{ messages[0].thinking }},{{ messages[0] | length }}",
    )
    .unwrap();
    let render =
        |message: &str| template.render_json(&format!("[{message}]"), &ChatOptions::new()).unwrap();
    for (message, want) in [
        (r#"{"role": "a", "reasoning": "T"}"#, "T,T,4"),
        (r#"{"role": "a", "thinking": "T"}"#, "T,T,3"),
        (r#"{"role": "a", "reasoning_content": "T"}"#, "T,T,3"),
        (r#"{"reasoning_content": null, "reasoning": "T"}"#, "T,T,3"),
        (r#"{"thinking": "a", "reasoning_content": "b"}"#, "b,a,2"),
        (r#"{"role": "a", "reasoning": null}"#, ",,2"),
    ] {
        assert_eq!(render(message), want, "{message}");
    }
    // other objects keep their members
    let template = ChatTemplate::new("{{ messages[0].x.reasoning_content }}").unwrap();
    let message = r#"[{"x": {"reasoning": "T"}}]"#;
    assert_eq!(template.render_json(message, &ChatOptions::new()).unwrap(), "");
    for message in ["[3]", "{}", "7"] {
        let error = template.render_json(message, &ChatOptions::new()).unwrap_err();
        assert!(error.to_string().contains("a list of messages"), "{error}");
    }
}

#[test]
fn a_folder_has_its_template_in_a_file_or_under_a_key() {
    let folder = Folder::new("chat");
    let open = || ChatTemplate::open(&folder.0);
    assert!(open().unwrap().is_none());
    let config = folder.0.join("tokenizer_config.json");
    let render = || {
        let template = open().unwrap().unwrap();
        template.render(&[Message::user("x")], &ChatOptions::new()).unwrap()
    };
    fs::write(&config, r#"{"bos_token": "<s>"}"#).unwrap();
    assert!(open().unwrap().is_none());
    fs::write(&config, r#"{"bos_token": {"content": "<b>"}, "chat_template": "{{ bos_token }}1"}"#)
        .unwrap();
    assert_eq!(render(), "<b>1");
    let list = r#"[{"name": "rag", "template": "2"}, {"name": "default", "template": "3"}]"#;
    fs::write(&config, format!(r#"{{"chat_template": {list}}}"#)).unwrap();
    assert_eq!(render(), "3");
    // none of the list is taken in the place of a default
    let list = r#"[{"name": "rag", "template": "2"}]"#;
    fs::write(&config, format!(r#"{{"chat_template": {list}}}"#)).unwrap();
    assert!(open().unwrap().is_none());
    // conversations with tools have a separate template
    let with_tools = || {
        let options = ChatOptions::new().with_variable("tools", "[]");
        open().unwrap().unwrap().render(&[Message::user("x")], &options).unwrap()
    };
    let list = r#"[{"name": "tool_use", "template": "t"}, {"name": "default", "template": "3"}]"#;
    fs::write(&config, format!(r#"{{"chat_template": {list}}}"#)).unwrap();
    assert_eq!((render(), with_tools()), ("3".to_string(), "t".to_string()));
    fs::create_dir(folder.0.join("additional_chat_templates")).unwrap();
    fs::write(folder.0.join("additional_chat_templates/tool_use.jinja"), "own").unwrap();
    assert_eq!((render(), with_tools()), ("3".to_string(), "own".to_string()));
    // tokens of the model alone
    let named = r#"{"image_token": "<i>", "extra_special_tokens": {"video_token": "<v>"},
        "chat_template": "{{ image_token }}{{ video_token }}"}"#;
    fs::write(&config, named).unwrap();
    assert_eq!(render(), "<i><v>");
    fs::write(folder.0.join("chat_template.jinja"), "4{{ messages[0].content }}\n").unwrap();
    assert_eq!(render(), "4x");
    // which replaces the list, but not the file for tools
    fs::write(&config, r#"{"chat_template": [{"name": "tool_use", "template": "t"}]}"#).unwrap();
    assert_eq!(with_tools(), "own");
    fs::remove_file(folder.0.join("additional_chat_templates/tool_use.jinja")).unwrap();
    assert_eq!(with_tools(), "4x");
    for (text, said) in [
        ("{% for %}", "line 1"),
        ("{{ raise_exception('only two turns') }}", "only two turns"),
        ("{{ nothing.else }}", "chat template"),
        (
            "{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}",
            "fuel",
        ),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "chat template"),
    ] {
        fs::write(folder.0.join("chat_template.jinja"), text).unwrap();
        let rendered = open().and_then(|template| {
            template.unwrap().render(&[Message::user("x")], &ChatOptions::new())
        });
        let error = rendered.unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
    fs::write(folder.0.join("chat_template.jinja"), [0xff]).unwrap();
    assert!(open().unwrap_err().to_string().contains("not UTF-8"));
    fs::remove_file(folder.0.join("chat_template.jinja")).unwrap();
    fs::write(&config, r#"{"chat_template": 5}"#).unwrap();
    assert!(open().unwrap_err().to_string().contains("chat_template"));
    let template = ChatTemplate::new("{{ messages }}").unwrap();
    let options = ChatOptions::new().with_variable("tools", "[1,");
    let error = template.render(&[Message::user("x")], &options).unwrap_err().to_string();
    assert!(error.contains("not JSON") && error.contains("tools"), "{error}");
    assert!(template.render_json("[{]", &ChatOptions::new()).is_err());
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let error = template.render_json(&deep, &ChatOptions::new()).unwrap_err().to_string();
    assert!(error.contains("more than 128 values are nested"), "{error}");
    // special tokens of the older file
    fs::write(&config, r#"{"chat_template": "{{ bos_token }}{{ sep_token }}"}"#).unwrap();
    let map = r#"{"bos_token": {"content": "<s>"}, "sep_token": "</s>"}"#;
    fs::write(folder.0.join("special_tokens_map.json"), map).unwrap();
    assert_eq!(render(), "<s></s>");
}
