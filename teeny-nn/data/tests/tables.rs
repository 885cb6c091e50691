//! Tables of CSV files as tensors.

use crate::common::{Dice, Folder, assert_close, device, values, without_line};
use std::fs;
use teeny_core::DType;
use teeny_data::{DataLoader, Dataset, Table, TableEncoder};
use teeny_nn::state::Checkpoint;

const FLATS: &str = "area,city,lift,price\n50,Rome,yes,120\n80, Oslo ,no,310.5\n\
                     ,Rome,yes,150\n\n65,\"Rome\",NA,170\n";

fn flats() -> Table {
    Table::parse("flats.csv", FLATS, ',').unwrap()
}

fn encoder() -> TableEncoder {
    TableEncoder::new()
        .with_numbers(["area"])
        .with_categories(["city", "lift"])
        .with_target_number("price")
}

#[test]
fn a_file_is_rows_of_named_columns() {
    let folder = Folder::new("tables");
    for (name, text) in [
        ("flats.csv", FLATS.to_string()),
        ("bom.csv", format!("\u{feff}{}", FLATS.replace('\n', "\r\n"))),
        ("flats.tsv", FLATS.replace(',', "\t")),
        ("mac.csv", FLATS.replace('\n', "\r")),
    ] {
        let path = folder.0.join(name);
        fs::write(&path, text).unwrap();
        let table = Table::read(&path).unwrap();
        assert_eq!(table.columns(), ["area", "city", "lift", "price"]);
        assert_eq!(table.len(), 4);
        let column = |name| table.column(name).unwrap().collect::<Vec<_>>();
        assert_eq!(column("city"), ["Rome", "Oslo", "Rome", "Rome"]);
        assert_eq!(column("area"), ["50", "80", "", "65"]);
        let error = table.column("pric").err().unwrap().to_string();
        assert!(error.contains(name) && error.contains("help: \"price\"?"), "{error}");
    }
    let part = flats().subset(vec![3, 1]).unwrap().all().unwrap();
    assert_eq!(part.column("area").unwrap().collect::<Vec<_>>(), ["65", "80"]);
}

#[test]
fn files_that_are_no_table_say_why() {
    let folder = Folder::new("bad-tables");
    for (text, says) in [
        ("", "bad.csv is empty"),
        ("a,b,a\n", "bad.csv, line 1: two columns are called \"a\""),
        ("a,b\n1,2\n\n3\n", "bad.csv, line 4: 1 columns, but the first line has 2"),
        ("a,b\n1,\"2\n", "bad.csv, line 2: a quote is not closed"),
    ] {
        let error = without_line(&Table::parse("bad.csv", text, ',').unwrap_err());
        assert!(error.contains(says), "{error}");
    }
    let path = folder.0.join("bad.csv");
    fs::write(&path, b"a,b\n1,\xff\n").unwrap();
    assert!(Table::read(&path).unwrap_err().to_string().contains("line 2: not UTF-8"));
    assert!(Table::read(folder.0.join("none.csv")).unwrap_err().to_string().contains("none.csv"));
    let error = Table::read(folder.0.join("a.txt")).unwrap_err().to_string();
    assert!(error.contains("not a .csv or .tsv file") && error.contains("Table::parse"), "{error}");
}

#[test]
fn columns_are_encoded_by_the_training_rows() {
    let (device, table) = (device(), flats());
    let encoder = encoder().fit(&table).unwrap();
    assert_eq!(encoder.width(), 2 + 2 + 3);
    assert_eq!(encoder.categories_of("city").unwrap(), ["Oslo", "Rome"]);
    assert_eq!(encoder.categories_of("lift").unwrap(), ["NA", "no", "yes"]);
    let (x, y) = (encoder.inputs(&table, &device).unwrap(), encoder.targets(&table, &device));
    let std = ((225.0 + 225.0) / 3.0f64).sqrt();
    #[rustfmt::skip]
    let want = [
        -15.0 / std, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0,
        15.0 / std, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0,
        0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0,
        0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0,
    ];
    assert_eq!((x.dtype(), &x.shape()[..]), (DType::F32, &[4, 7][..]));
    assert_close(&values(&x), &want, 1e-6, &"inputs");
    let y = y.unwrap();
    assert_eq!((y.dtype(), values(&y)), (DType::F32, vec![120.0, 310.5, 150.0, 170.0]));
    let numbers = encoder.numbers(&table, &device).unwrap();
    assert_eq!(values(&numbers)[4..6], [0.0, 1.0]);
    let ids = encoder.categories(&table, &device).unwrap();
    assert_eq!((ids.dtype(), &ids.shape()[..]), (DType::I32, &[4, 2][..]));
    assert_eq!(values(&ids), [2.0, 3.0, 1.0, 2.0, 2.0, 3.0, 2.0, 1.0]);
    // other rows: a category that is unknown, without a target, in another order of columns
    let other = Table::parse("new.csv", "city,lift,area\nBonn,yes,65\n,maybe,80\n", ',').unwrap();
    let want = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 15.0 / std, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    assert_close(&values(&encoder.inputs(&other, &device).unwrap()), &want, 1e-6, &"others");
    assert_eq!(values(&encoder.categories(&other, &device).unwrap()), [0.0, 3.0, 0.0, 0.0]);
    let error = encoder.targets(&other, &device).unwrap_err().to_string();
    assert!(error.contains("new.csv has no column \"price\"; it has city, lift, area"), "{error}");
    let loader = DataLoader::new((x, y), 3).unwrap();
    assert_eq!(loader.batches(), 2);
}

#[test]
fn classes_are_sorted_and_others_refused() {
    let device = device();
    let text = "x,kind\n1,b\n2,a\n3,c\n4,a\n";
    let table = Table::parse("t.csv", text, ',').unwrap();
    let encoder =
        TableEncoder::new().with_numbers(["x"]).with_target_class("kind").fit(&table).unwrap();
    assert_eq!(encoder.classes(), ["a", "b", "c"]);
    let y = encoder.targets(&table, &device).unwrap();
    assert_eq!((y.dtype(), values(&y)), (DType::I32, vec![1.0, 0.0, 2.0, 0.0]));
    for (cell, says) in [
        ("d", "other.csv, line 3, column \"kind\": \"d\" is not a class"),
        ("", "other.csv, line 3, column \"kind\": the target is missing"),
    ] {
        let other = Table::parse("other.csv", &format!("x,kind\n1,a\n2,{cell}\n"), ',').unwrap();
        let error = without_line(&encoder.targets(&other, &device).unwrap_err());
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn cells_and_columns_that_do_not_fit_are_named() {
    let fit = |encoder: TableEncoder, text: &str| {
        let table = Table::parse("bad.csv", text, ',').unwrap();
        without_line(&encoder.fit(&table).unwrap_err())
    };
    let numbers = || TableEncoder::new().with_numbers(["x"]);
    for (encoder, text, says) in [
        (numbers(), "x\n1\nabc\n", "line 3, column \"x\": \"abc\" is not a finite number"),
        (numbers(), "x\n1\n1e999\n", "line 3, column \"x\": \"1e999\" is not a finite number"),
        (numbers(), "x\ninf\n", "line 2, column \"x\": \"inf\" is not a finite number"),
        (numbers(), "x,y\nNA,1\n", "column \"x\" of 1 rows has no number"),
        (numbers(), "y\n1\n", "no column \"x\""),
        (numbers(), "x\n", "1 columns and 0 rows"),
        (TableEncoder::new(), "x\n1\n", "0 columns and 1 rows"),
        (numbers().with_categories(["x"]), "x\n1\n", "column \"x\" is used twice"),
        (numbers().with_target_number("y"), "x,y\n1,2\n2,\n", "line 3, column \"y\": the target"),
        (numbers().with_target_class("x"), "x\n1\n", "column \"x\" is used twice"),
    ] {
        let error = fit(encoder, text);
        assert!(error.contains(says), "{error}");
    }
    let error = numbers().inputs(&flats(), device()).unwrap_err().to_string();
    assert!(error.contains("the encoder is not fitted"), "{error}");
    assert!(numbers().state().is_err());
    let fitted = numbers().fit(&Table::parse("t", "x\n3\n3\n", ',').unwrap()).unwrap();
    let other = Table::parse("t", "x\n4\n\n", ',').unwrap();
    assert_eq!(values(&fitted.inputs(&other, device()).unwrap()), [1.0]); // a deviation of 0
    assert!(fitted.targets(&other, device()).unwrap_err().to_string().contains("no target column"));
    assert!(fitted.categories_of("x").unwrap_err().to_string().contains("there are none"));
}

#[test]
fn a_class_may_be_called_na() {
    let table = Table::parse("t.csv", "x,y\n1,NA\nNA,EU\n3,NA\n", ',').unwrap();
    let encoder = TableEncoder::new().with_numbers(["x"]).with_target_class("y");
    let encoder = encoder.fit(&table).unwrap();
    assert_eq!(encoder.classes(), ["EU", "NA"]);
    assert_eq!(values(&encoder.targets(&table, device()).unwrap()), [1.0, 0.0, 1.0]);
    let missing = Table::parse("t.csv", "x,y\n1,\n", ',').unwrap();
    let error = encoder.targets(&missing, device()).unwrap_err().to_string();
    assert!(error.contains("the target is missing"), "{error}");
}

#[test]
fn an_encoder_is_part_of_a_checkpoint() {
    let (folder, device, mut dice) = (Folder::new("table-state"), device(), Dice(3));
    let path = folder.0.join("run.ckpt");
    for case in 0..20 {
        let mut text = "a,b,c,y\n".to_string();
        for _ in 0..2 + dice.below(20) {
            let number = (dice.below(4) > 0).then(|| 1e-3 * dice.below(1 << 40) as f64 / 7.0);
            let word = ["", "x\ny", "\"quoted\"", "ä, b", "NA"][dice.below(5)];
            let word = word.replace('"', "\"\"");
            let number = number.map_or(String::new(), |x| x.to_string());
            text += &format!("{number},{},\"{word}\",k{}\n", dice.below(9), dice.below(3));
        }
        let table = Table::parse("t.csv", &(text + "1,1,z,k0\n"), ',').unwrap();
        let new = || {
            let encoder = TableEncoder::new().with_numbers(["a"]).with_categories(["c", "b"]);
            encoder.with_target_class("y")
        };
        let encoder = new().fit(&table).unwrap();
        Checkpoint::new().put("table", &encoder).unwrap().save(&path).unwrap();
        for mut other in [TableEncoder::new(), new()] {
            let checkpoint = Checkpoint::load(&path, &device).unwrap();
            checkpoint.restore("table", &mut other).unwrap();
            assert_eq!(other, encoder, "case {case}");
        }
    }
    let mut other = TableEncoder::new().with_numbers(["a", "c"]);
    let state = encoder().fit(&flats()).unwrap().state().unwrap();
    let before = other.clone();
    let error = other.set_state(&state).unwrap_err().to_string();
    assert!(error.contains("columns area, city, lift, price, the encoder a, c"), "{error}");
    assert_eq!(other, before);
    for damaged in ["", "{}", "[1]", "{\"columns\": [{\"number\": \"x\"}], \"target\": null}"] {
        let state = teeny_formats::State::default().with("columns", damaged);
        let error = other.set_state(&state).unwrap_err().to_string();
        assert!(error.contains("is not a table encoder"), "{error}");
    }
}
