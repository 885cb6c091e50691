//! Reads the XML of pictures.

/// The names of the tags of an XML text with the text inside `title`; fails if tags are not
/// balanced.
pub fn read_xml(text: &str) -> Vec<String> {
    let (mut open, mut tags) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        assert!(!rest[..start].contains('>'), "{}", &rest[..start]);
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        assert!(!tag.contains('<') && tag.matches('"').count().is_multiple_of(2), "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "tags are balanced");
        } else {
            let name = tag.split([' ', '/']).next().unwrap().to_string();
            tags.push(tag.to_string());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        for (at, _) in rest[..start].match_indices('&') {
            let known = ["&amp;", "&lt;", "&gt;", "&quot;"];
            assert!(known.iter().any(|entity| rest[at..].starts_with(entity)), "{rest}");
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty());
    tags
}
