//! The look that all pictures share: fonts, and colours on a light or dark page.

use std::path::Path;
use teeny_core::file::replace;
use teeny_core::{Error, Result};

/// One colour per curve or class, told apart by most kinds of colour blindness: six of Okabe & Ito
/// 2008, then four more.
pub(super) const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#999999",
    "#9ab800", "#7a5cff",
];

/// The width of a character of font size 12, estimated: SVG alone cannot measure text.
pub(super) const CHARACTER: f64 = 6.3;

/// The head of a picture of this size in pixels, with its title and background. A class `page` is
/// the background, `grid` a line of a grid; text has the colour of the page's text.
pub(super) fn head(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" class=\"teeny\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<style>.teeny{{fill:#222}} .teeny .page{{fill:#fff}} \
         .teeny .grid{{stroke:#ddd}}\n@media(prefers-color-scheme:dark){{.teeny{{fill:#ddd}} \
         .teeny .page{{fill:#1b1d21}} .teeny .grid{{stroke:#444}}}}</style>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n\
         <text x=\"{}\" y=\"24\" font-size=\"15\" text-anchor=\"middle\">{}</text>\n",
        width / 2.0,
        escape(title)
    )
}

pub(super) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // XML has no other control characters, not even escaped
    text.replace(|c: char| c.is_control() && c != '\n' || c == '\u{fffe}' || c == '\u{ffff}', " ")
}

/// Writes `bytes` to `path`.
pub(super) fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    replace(path, |writer| writer.write_all(bytes).map_err(|e| Error::io(e.to_string())))
}

/// Source: RFC 4648, section 4.
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let at = |i: usize| u32::from(part.get(i).copied().unwrap_or(0));
        let group = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * i) & 63) as usize];
            text.push(if i > part.len() { '=' } else { digit.into() });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_the_vectors_of_its_standard() {
        let all = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|x| base64(x.as_bytes()));
        let known = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        assert_eq!(all, known);
    }
}
