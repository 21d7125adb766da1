//! What is to be known of the functions of interpreters on the stacks.

use crate::report::model::{Notice, Stack};

/// That some of them are a sample.
pub(super) fn sampled(stacks: &[Stack]) -> Option<Notice> {
    let is_sampled = |stack: &&Stack| stack.frames.iter().any(|frame| frame.sampled);
    let sampled = stacks.iter().filter(is_sampled).count();
    let of_them = match sampled {
        0 => return None,
        1 => "1 stack has".to_owned(),
        many => format!("{many} stacks have"),
    };
    Some(Notice {
        name: "sampled-functions".to_owned(),
        text: format!(
            "{of_them} functions of a script that were read a moment after the allocation, when \
             their thread was not known yet: those marked (sampled) may be others than those that \
             allocated"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::Frame;

    fn stack(sampled: bool) -> Stack {
        let frames = vec![Frame { sampled, ..Frame::default() }.into(), Frame::default().into()];
        Stack {
            family: "libc.so.6".to_owned(),
            bytes: 1,
            blocks: 1,
            per_batch: vec![1],
            end: None,
            frames,
        }
    }

    #[test]
    fn only_a_sample_is_told() {
        assert_eq!(sampled(&[stack(false), stack(false)]), None);
        let one = sampled(&[stack(false), stack(true)]).expect("a notice");
        assert_eq!(one.name, "sampled-functions");
        assert!(one.text.starts_with("1 stack has functions"), "{}", one.text);
        let two = sampled(&[stack(true), stack(true)]).expect("a notice");
        assert!(two.text.starts_with("2 stacks have functions"), "{}", two.text);
    }
}
