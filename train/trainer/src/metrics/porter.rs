//! The Porter stemmer (Porter, "An algorithm for suffix stripping", 1980) with the extensions of NLTK, which `rouge-score`
//! uses: irregular forms, `-ied` and `-ies` of short words, `y` after vowels, `-alli`, `-fulli`, `-logi`.
//!
//! Words are lower-case ASCII letters and digits; digits count as consonants. Equal to `nltk.stem.PorterStemmer` on the
//! words of `tests/golden/metrics/porter.tsv`.

/// The stem of a lower-case word of a-z and 0-9: `relat` of `relational`, `sky` of `skies`. Other words are returned unchanged.
pub(crate) fn stem(word: &str) -> String {
    if let Some((_, stem)) = IRREGULAR.iter().find(|(form, _)| *form == word) {
        return (*stem).to_owned();
    }
    if word.len() <= 2 || !word.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) {
        return word.to_owned();
    }
    [step_1a, step_1b, step_1c, step_2, step_3, step_4, step_5a, step_5b]
        .into_iter()
        .fold(word.to_owned(), |word, step| step(&word))
}

const IRREGULAR: [(&str, &str); 16] = [
    ("sky", "sky"),
    ("skies", "sky"),
    ("dying", "die"),
    ("lying", "lie"),
    ("tying", "tie"),
    ("news", "news"),
    ("innings", "inning"),
    ("inning", "inning"),
    ("outings", "outing"),
    ("outing", "outing"),
    ("cannings", "canning"),
    ("canning", "canning"),
    ("howe", "howe"),
    ("proceed", "proceed"),
    ("exceed", "exceed"),
    ("succeed", "succeed"),
];

/// Whether each letter is a consonant; `y` is one at the start and after a vowel.
fn consonants(word: &str) -> Vec<bool> {
    let mut out: Vec<bool> = Vec::with_capacity(word.len());
    for c in word.bytes() {
        let is_consonant = match c {
            b'a' | b'e' | b'i' | b'o' | b'u' => false,
            b'y' => !out.last().is_some_and(|consonant| *consonant),
            _ => true,
        };
        out.push(is_consonant);
    }
    out
}

/// Number of changes from vowel to consonant: m in the paper.
fn measure(stem: &str) -> usize {
    consonants(stem).windows(2).filter(|pair| !pair[0] && pair[1]).count()
}

fn has_vowel(stem: &str) -> bool {
    consonants(stem).contains(&false)
}

/// Condition *d: ends in a double consonant.
fn ends_double(word: &str) -> bool {
    let bytes = word.as_bytes();
    matches!(bytes, [.., a, b] if a == b) && consonants(word).last() == Some(&true)
}

/// Condition *o: ends in consonant, vowel, consonant other than w, x, y; or, by NLTK, is a vowel and a consonant.
fn ends_cvc(word: &str) -> bool {
    match consonants(word).as_slice() {
        [.., true, false, true] => !word.ends_with(['w', 'x', 'y']),
        [false, true] => true,
        _ => false,
    }
}

/// Applies the first rule whose suffix matches, if its condition on the stem holds; later rules are not tried.
fn replace(word: &str, rules: &[(&str, &str)], condition: impl Fn(&str) -> bool) -> String {
    for (suffix, replacement) in rules {
        if let Some(stem) = word.strip_suffix(suffix) {
            return if condition(stem) { format!("{stem}{replacement}") } else { word.to_owned() };
        }
    }
    word.to_owned()
}

/// Plurals.
fn step_1a(word: &str) -> String {
    if word.len() == 4 && word.ends_with("ies") {
        return word[..3].to_owned();
    }
    replace(word, &[("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")], |_| true)
}

/// Past forms and participles.
fn step_1b(word: &str) -> String {
    if let Some(stem) = word.strip_suffix("ied") {
        return format!("{stem}{}", if stem.len() == 1 { "ie" } else { "i" });
    }
    if let Some(stem) = word.strip_suffix("eed") {
        return if measure(stem) > 0 { format!("{stem}ee") } else { word.to_owned() };
    }
    let stripped =
        ["ed", "ing"].into_iter().filter_map(|suffix| word.strip_suffix(suffix)).find(|stem| has_vowel(stem));
    let Some(stem) = stripped else { return word.to_owned() };
    if ["at", "bl", "iz"].iter().any(|end| stem.ends_with(end)) {
        format!("{stem}e")
    } else if ends_double(stem) {
        // The condition of this rule looks at the letter; when it fails, the rule below is not tried.
        if stem.ends_with(['l', 's', 'z']) { stem.to_owned() } else { stem[..stem.len() - 1].to_owned() }
    } else if measure(stem) == 1 && ends_cvc(stem) {
        format!("{stem}e")
    } else {
        stem.to_owned()
    }
}

/// Final `y` after a consonant, unless that is all there is.
fn step_1c(word: &str) -> String {
    replace(word, &[("y", "i")], |stem| stem.len() > 1 && consonants(stem).last() == Some(&true))
}

/// Double suffixes.
fn step_2(word: &str) -> String {
    const RULES: [(&str, &str); 21] = [
        ("ational", "ate"),
        ("tional", "tion"),
        ("enci", "ence"),
        ("anci", "ance"),
        ("izer", "ize"),
        ("bli", "ble"),
        ("alli", "al"),
        ("entli", "ent"),
        ("eli", "e"),
        ("ousli", "ous"),
        ("ization", "ize"),
        ("ation", "ate"),
        ("ator", "ate"),
        ("alism", "al"),
        ("iveness", "ive"),
        ("fulness", "ful"),
        ("ousness", "ous"),
        ("aliti", "al"),
        ("iviti", "ive"),
        ("biliti", "ble"),
        ("fulli", "ful"),
    ];
    if let Some(stem) = word.strip_suffix("alli").filter(|stem| measure(stem) > 0) {
        return step_2(&format!("{stem}al"));
    }
    if word.ends_with("logi") {
        // The l counts with the stem here, so that "geo" and "theo" are long enough.
        let log = &word[..word.len() - 1];
        return if measure(&word[..word.len() - 3]) > 0 { log.to_owned() } else { word.to_owned() };
    }
    replace(word, &RULES, |stem| measure(stem) > 0)
}

fn step_3(word: &str) -> String {
    const RULES: [(&str, &str); 7] =
        [("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")];
    replace(word, &RULES, |stem| measure(stem) > 0)
}

fn step_4(word: &str) -> String {
    const SUFFIXES: [&str; 19] = [
        "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate",
        "iti", "ous", "ive", "ize",
    ];
    let Some((suffix, stem)) = SUFFIXES.iter().find_map(|s| word.strip_suffix(s).map(|stem| (*s, stem))) else {
        return word.to_owned();
    };
    let applies = measure(stem) > 1 && (suffix != "ion" || stem.ends_with(['s', 't']));
    if applies { stem.to_owned() } else { word.to_owned() }
}

/// Final `e`.
fn step_5a(word: &str) -> String {
    match word.strip_suffix('e') {
        Some(stem) if measure(stem) > 1 || (measure(stem) == 1 && !ends_cvc(stem)) => stem.to_owned(),
        _ => word.to_owned(),
    }
}

/// Final `ll`.
fn step_5b(word: &str) -> String {
    let single = &word[..word.len().saturating_sub(1)];
    if word.ends_with("ll") && measure(single) > 1 { single.to_owned() } else { word.to_owned() }
}
