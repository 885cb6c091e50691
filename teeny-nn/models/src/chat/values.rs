//! JSON as values of a template, the filter `tojson` and the function `strftime_now`, as in Python:
//! members keep their order, text is not escaped for HTML.

use minijinja::value::{
    Enumerator, Kwargs, Object, ObjectExt, Rest, ValueKind, ValueOrKwargs, from_args,
};
use minijinja::{Environment, Error as TemplateError, ErrorKind, State, Value, filters};
use std::sync::Arc;
use std::time::SystemTime;
use teeny_core::{Error, Result};
use teeny_formats::json::Json;

type Done<T> = std::result::Result<T, TemplateError>;

/// Members in their order.
#[derive(Debug)]
pub(super) struct Ordered(Vec<(String, Value)>);

impl Ordered {
    pub fn value(members: Vec<(String, Value)>) -> Value {
        Value::from_object(Ordered(members))
    }
}

impl Object for Ordered {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let key = key.as_str()?;
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_enumerator(|this| Box::new(this.0.iter().map(|(name, _)| Value::from(&**name))))
    }
}

/// A message whose thoughts have each name that templates read.
pub(super) fn message(message: Value) -> Value {
    let Some(Ordered(members)) = message.downcast_object_ref::<Ordered>() else { return message };
    let names = ["reasoning_content", "thinking", "reasoning"];
    let get = |key: &str| members.iter().find(|(name, _)| name == key).map(|(_, value)| value);
    let Some(thought) = names.iter().find_map(|key| get(key).filter(|x| !x.is_none())) else {
        return message;
    };
    // in Python's order of {"thinking": .., **message, "reasoning_content": ..}
    let mut all = vec![("thinking".to_string(), get("thinking").unwrap_or(thought).clone())];
    all.extend(members.iter().filter(|(name, _)| name != "thinking").cloned());
    match all.iter_mut().find(|(name, _)| name == "reasoning_content") {
        Some((_, own)) => *own = thought.clone(),
        None => all.push(("reasoning_content".to_string(), thought.clone())),
    }
    Ordered::value(all)
}

/// A value of JSON.
///
/// # Errors
/// If more than [`DEPTH`] values are nested.
pub(super) fn value(json: Json<'_>) -> Result<Value> {
    nested(json, 0)
}

fn nested(json: Json<'_>, depth: usize) -> Result<Value> {
    if depth > DEPTH {
        return Err(Error::value(format!("more than {DEPTH} values are nested")));
    }
    let value = |json| nested(json, depth + 1);
    let text = json.text();
    if let Some(items) = json.items() {
        return items.map(value).collect::<Result<Vec<_>>>().map(Value::from);
    }
    if text.starts_with('{') {
        let mut members = Vec::new();
        json.members(|name, member| {
            members.push((name, value(member)?));
            Ok(())
        })?;
        return Ok(Ordered::value(members));
    }
    if let Some(text) = json.checked_string() {
        return text.map(Value::from);
    }
    Ok(match text {
        "null" => Value::from(()),
        "true" => Value::from(true),
        "false" => Value::from(false),
        _ => {
            let float = text.contains(['.', 'e', 'E']);
            let integer = || text.parse::<i128>().map(Value::from).ok();
            let number = if float { text.parse::<f64>().map(Value::from).ok() } else { integer() };
            number.ok_or_else(|| Error::format(format!("{text} is not a 128-bit number")))?
        }
    })
}

/// The filter `tojson`, as Python's `json.dumps` with `ensure_ascii=False`.
fn to_json(
    value: &Value,
    ascii: Option<Value>,
    indent: Option<usize>,
    separators: Option<Vec<String>>,
    sorted: Option<bool>,
) -> Done<Value> {
    let (ascii, sorted) = (ascii.is_some_and(|x| x.is_true()), sorted.unwrap_or(false));
    let usual = if indent.is_some() { "," } else { ", " };
    let (item, key) = match separators.as_deref() {
        None => (usual.to_string(), ": ".to_string()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            let text = "separators are two texts";
            return Err(TemplateError::new(ErrorKind::InvalidOperation, text));
        }
    };
    let mut writer = Writer { out: String::new(), indent, item, key, sorted, ascii };
    writer.write(value, 0)?;
    Ok(Value::from_safe_string(writer.out))
}

/// A filter of `minijinja`, and Jinja's names of its arguments after the value.
type Filter = (&'static str, &'static [&'static str], Value);

/// Replaces filters by ones that take arguments by name, as Jinja's do, or that name what they do
/// not know.
pub(super) fn filters(environment: &mut Environment<'_>) {
    let json = &["ensure_ascii", "indent", "separators", "sort_keys"];
    let all: [Filter; 12] = [
        ("tojson", json, Value::from_function(to_json)),
        ("default", &["default_value", "boolean"], Value::from_function(filters::default)),
        ("d", &["default_value", "boolean"], Value::from_function(filters::default)),
        ("trim", &["chars"], Value::from_function(filters::trim)),
        ("batch", &["linecount", "fill_with"], Value::from_function(filters::batch)),
        ("slice", &["slices", "fill_with"], Value::from_function(filters::slice)),
        ("attr", &["name"], Value::from_function(filters::attr)),
        ("map", &[], Value::from_function(filters::map)),
        ("select", &[], Value::from_function(filters::select)),
        ("reject", &[], Value::from_function(filters::reject)),
        ("selectattr", &[], Value::from_function(filters::selectattr)),
        ("rejectattr", &[], Value::from_function(filters::rejectattr)),
    ];
    for (name, parameters, filter) in all {
        let call = move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = positional(&args.into_values(), parameters)?;
            filter.call(state, &args).map_err(|error| match error.detail() {
                Some(_) => error,
                None => TemplateError::new(
                    error.kind(),
                    format!("{name} of {:?}", args.get(1..).unwrap_or_default()),
                ),
            })
        };
        environment.add_filter(name, call);
    }
    let indent = Value::from_function(filters::indent);
    let call = move |state: &mut State<'_, '_>, text: String, args: Rest<ValueOrKwargs>| {
        // it drops a line feed at the end
        let mut all = vec![Value::from(text + "\n")];
        all.extend(args.into_values());
        indent.call(state, &all)
    };
    environment.add_filter("indent", call);
}

/// `args` with those that are given by name at their places behind the first.
fn positional(args: &[Value], parameters: &[&str]) -> Done<Vec<Value>> {
    if parameters.is_empty() {
        return Ok(args.to_vec());
    }
    let (args, named): (&[Value], Kwargs) = from_args(args)?;
    let mut args = args.to_vec();
    for (at, name) in (1..).zip(parameters).filter(|(_, name)| named.has(name)) {
        // an undefined value is the default of the argument before
        args.resize(args.len().max(at), Value::UNDEFINED);
        if args.len() > at {
            return Err(ErrorKind::TooManyArguments.into());
        }
        args.push(named.get(name)?);
    }
    named.assert_all_used()?;
    Ok(args)
}

struct Writer {
    out: String,
    indent: Option<usize>,
    /// Between items, and between a key and its value.
    item: String,
    key: String,
    sorted: bool,
    ascii: bool,
}

/// The nesting of values that are written.
const DEPTH: usize = 128;

impl Writer {
    fn write(&mut self, value: &Value, depth: usize) -> Done<()> {
        if depth > DEPTH {
            let text = format!("more than {DEPTH} values are nested");
            return Err(TemplateError::new(ErrorKind::InvalidOperation, text));
        }
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => self.out += "null",
            ValueKind::Bool => self.out += if value.is_true() { "true" } else { "false" },
            ValueKind::Number => {
                self.out += &number(value).replace("nan", "NaN").replace("inf", "Infinity");
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    keys.sort_by_key(|key| key.to_string());
                }
                self.list('{', '}', keys, depth, |writer, key| {
                    let is_none = key.is_none();
                    writer.string(&if is_none { "null".to_string() } else { key.to_string() });
                    writer.out += &writer.key.clone();
                    writer.write(&value.get_item(key)?, depth + 1)
                })?;
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list('[', ']', items, depth, |writer, item| writer.write(item, depth + 1))?;
            }
            _ => self.string(&value.to_string()),
        }
        Ok(())
    }

    fn list(
        &mut self,
        open: char,
        close: char,
        items: Vec<Value>,
        depth: usize,
        each: impl Fn(&mut Writer, &Value) -> Done<()>,
    ) -> Done<()> {
        self.out.push(open);
        let line = |writer: &mut Writer, depth: usize| {
            if let Some(indent) = writer.indent {
                writer.out.push('\n');
                writer.out += &" ".repeat(indent.min(64) * depth);
            }
        };
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.out += &self.item.clone();
            }
            line(self, depth + 1);
            each(self, item)?;
        }
        if !items.is_empty() {
            line(self, depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn string(&mut self, text: &str) {
        let text = serde_json::Value::from(text).to_string();
        if !self.ascii {
            self.out += &text;
            return;
        }
        for unit in text.encode_utf16() {
            match u8::try_from(unit).ok().filter(u8::is_ascii) {
                Some(byte) => self.out.push(char::from(byte)),
                None => self.out += &format!("\\u{unit:04x}"),
            }
        }
    }
}

/// A number as Python prints it: a float has a decimal point, or an exponent of at least two digits
/// if the exponent is below -4 or above 15.
pub(super) fn number(value: &Value) -> String {
    let Some(x) = f64::try_from(value.clone()).ok().filter(|_| !value.is_integer()) else {
        return value.to_string();
    };
    let text = format!("{x:?}");
    match text.split_once('e').map(|(digits, e)| (digits, e.strip_prefix('-').ok_or(e))) {
        Some((digits, Ok(e))) => format!("{digits}e-{e:0>2}"),
        Some((digits, Err(e))) => format!("{digits}e+{e:0>2}"),
        None => text.to_lowercase(), // nan, inf
    }
}

const MONTHS: &str = "January February March April May June July August September October \
                      November December";
const DAYS: &str = "Thursday Friday Saturday Sunday Monday Tuesday Wednesday";

/// The function `strftime_now`: the time in UTC.
pub(super) fn now(format: String) -> Done<String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    formatted(now.as_secs(), &format)
}

/// `seconds` since 1970 by a format of C's `strftime`.
fn formatted(seconds: u64, format: &str) -> Done<String> {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut day) = (1970, days);
    let leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let (day_of_year, mut month) = (day + 1, 0);
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let named = |names: &'static str, n: usize| names.split(' ').nth(n).unwrap_or_default();
    let (weekday, month_name) = (named(DAYS, (days % 7) as usize), named(MONTHS, month));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (mut out, mut chars) = (String::new(), format.chars());
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let field = chars.next().unwrap_or('%');
        out += &match field {
            'Y' => year.to_string(),
            'y' => format!("{:02}", year % 100),
            'm' => format!("{:02}", month + 1),
            'B' => month_name.to_string(),
            'b' | 'h' => month_name[..3].to_string(),
            'd' => format!("{:02}", day + 1),
            'e' => format!("{:2}", day + 1),
            'j' => format!("{day_of_year:03}"),
            'A' => weekday.to_string(),
            'a' => weekday[..3].to_string(),
            'H' => format!("{hour:02}"),
            'I' => format!("{:02}", (hour + 11) % 12 + 1),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_string(),
            'M' => format!("{minute:02}"),
            'S' => format!("{second:02}"),
            'F' => format!("{year}-{:02}-{:02}", month + 1, day + 1),
            'T' => format!("{hour:02}:{minute:02}:{second:02}"),
            'Z' => "UTC".to_string(),
            'z' => "+0000".to_string(),
            '%' => "%".to_string(),
            other => {
                let text = format!("strftime_now does not know %{other}");
                return Err(TemplateError::new(ErrorKind::InvalidOperation, text));
            }
        };
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::formatted;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let all = "%Y-%m-%d %H:%M:%S %a %b %j %I%p";
        // by Python's datetime.fromtimestamp(.., UTC)
        for (seconds, want) in [
            (0, "1970-01-01 00:00:00 Thu Jan 001 12AM"),
            (951_827_696, "2000-02-29 12:34:56 Tue Feb 060 12PM"),
            (1_735_689_599, "2024-12-31 23:59:59 Tue Dec 366 11PM"),
            (4_107_542_400, "2100-03-01 00:00:00 Mon Mar 060 12AM"),
        ] {
            assert_eq!(formatted(seconds, all).unwrap(), want);
        }
        assert!(formatted(0, "%Q").unwrap_err().to_string().contains("%Q"));
    }
}
