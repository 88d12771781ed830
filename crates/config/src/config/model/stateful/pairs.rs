//! Parses the names of states: `<<<input, output>>>`, in the parameter `state_pairs` or in the description of a graph.

/// The input with a state, and the output with its next value.
pub(super) type StatePair = (String, String);

/// The words that mark a line of a description, for the input and for the output.
const MARKS: [(&str, &str); 2] = [("InputState", "OutputState"), ("PastValueInput", "PastValueOutput")];

/// The pairs in a text, or the part of the text that is invalid.
pub(super) fn parse(text: &str) -> Result<Vec<StatePair>, String> {
    let mut pairs = Vec::new();
    let mut rest = text;
    while let Some((_, from)) = rest.split_once("<<<") {
        let (inner, behind) = from.split_once(">>>").ok_or_else(|| format!("<<<{from}"))?;
        let names = inner.split_once(',').map(|(a, b)| (a.trim(), b.trim()));
        let (input, output) =
            names.filter(|(a, b)| !a.is_empty() && !b.is_empty()).ok_or_else(|| format!("<<<{inner}>>>"))?;
        pairs.push((input.to_owned(), output.to_owned()));
        rest = behind;
    }
    Ok(pairs)
}

/// The pairs in the lines of a description that mention states. The words in such a line give the order of the pair. A name may have the
/// dimensions of its tensor behind a colon.
pub(super) fn in_description(description: &str) -> Result<Vec<StatePair>, String> {
    let mut pairs = Vec::new();
    for (input, output) in MARKS {
        for line in description.lines() {
            let (Some(at_input), Some(at_output)) = (line.find(input), line.find(output)) else { continue };
            let behind = line.get(at_input..).unwrap_or_default();
            for (first, second) in parse(behind)? {
                let name = |name: String| name.split(':').next().unwrap_or_default().to_owned();
                let (first, second) = (name(first), name(second));
                pairs.push(if at_input < at_output { (first, second) } else { (second, first) });
            }
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(of: &[(&str, &str)]) -> Vec<StatePair> {
        of.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn state_pairs_are_parsed_between_triple_brackets() {
        let two = pairs(&[("h_in", "h_out"), ("c_in", "c_out")]);
        assert_eq!(parse("<<<h_in, h_out>>> <<<c_in, c_out>>>"), Ok(two.clone()));
        assert_eq!(parse("<<< h_in ,h_out >>>,\n<<<c_in,  c_out>>>"), Ok(two));
        assert_eq!(parse("h_in, h_out"), Ok(Vec::new()));
        assert_eq!(parse("<<<a, b>>> <<<c>>>"), Err("<<<c>>>".to_owned()));
        assert_eq!(parse("<<<a, b"), Err("<<<a, b".to_owned()));
        assert_eq!(parse("<<<, b>>>"), Err("<<<, b>>>".to_owned()));
    }

    #[test]
    fn a_description_names_pairs_in_either_order() {
        let text = "A model of speech.\n\
                    InputState/OutputState pairs: <<<h_in:1x16, h_out:1x16>>> <<<c_in, c_out>>>\n\
                    <<<x, y>>> is no pair of states\n\
                    OutputState, InputState: <<<s_out, s_in>>>\n\
                    PastValueInput, PastValueOutput <<<Past_1, Now_1>>>";
        let found = pairs(&[("h_in", "h_out"), ("c_in", "c_out"), ("s_in", "s_out"), ("Past_1", "Now_1")]);
        assert_eq!(in_description(text), Ok(found));
        assert_eq!(in_description("nothing of the kind"), Ok(Vec::new()));
    }
}
