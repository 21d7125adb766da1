//! What is to be known of the functions of interpreters on the stacks.

use crate::{
    interpreters::FREED,
    report::model::{Frame, Notice, Stack},
};

/// That some of them are a sample, and that some are not known.
pub(super) fn notices(stacks: &[Stack]) -> Vec<Notice> {
    let sampled = with(stacks, |frame| frame.sampled && !is_freed(frame)).map(|of_them| Notice {
        name: "sampled-functions".to_owned(),
        text: format!(
            "{of_them} functions of a script that were read a moment after the allocation, when \
             their thread was not known yet or another function had taken their place: those \
             marked (sampled) may be others than those that allocated"
        ),
    });
    let freed = with(stacks, is_freed).map(|of_them| Notice {
        name: "freed-functions".to_owned(),
        text: format!(
            "{of_them} functions of a script that were thrown away before their names could be \
             read, as what `exec` makes or a module that was imported: they are called {FREED}"
        ),
    });
    sampled.into_iter().chain(freed).collect()
}

fn is_freed(frame: &Frame) -> bool {
    frame.interpreted && frame.file.is_none() && frame.function.as_deref() == Some(FREED)
}

/// How many stacks have such a frame, as a sentence begins; `None` when none has.
fn with(stacks: &[Stack], is_wanted: impl Fn(&Frame) -> bool) -> Option<String> {
    let has_one = |stack: &&Stack| stack.frames.iter().any(|frame| is_wanted(frame));
    match stacks.iter().filter(has_one).count() {
        0 => None,
        1 => Some("1 stack has".to_owned()),
        many => Some(format!("{many} stacks have")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frame: Frame) -> Stack {
        Stack {
            family: "libc.so.6".to_owned(),
            bytes: 1,
            blocks: 1,
            per_batch: vec![1],
            end: None,
            frames: vec![frame.into(), Frame::default().into()],
        }
    }

    fn sampled(sampled: bool) -> Stack {
        stack(Frame { sampled, ..Frame::default() })
    }

    fn freed() -> Stack {
        let function = Some(FREED.to_owned());
        stack(Frame { function, interpreted: true, sampled: true, ..Frame::default() })
    }

    #[track_caller]
    fn check(stacks: &[Stack], beginnings: &[(&str, &str)]) {
        let notices = notices(stacks);
        assert_eq!(notices.len(), beginnings.len(), "{notices:?}");
        for (notice, (name, beginning)) in notices.iter().zip(beginnings) {
            assert_eq!(notice.name, *name);
            assert!(notice.text.starts_with(beginning), "{}", notice.text);
        }
    }

    #[test]
    fn only_a_sample_is_told() {
        check(&[sampled(false), sampled(false)], &[]);
        let one = [("sampled-functions", "1 stack has functions")];
        check(&[sampled(false), sampled(true)], &one);
        check(&[sampled(true), sampled(true)], &[("sampled-functions", "2 stacks have functions")]);
    }

    #[test]
    fn what_was_thrown_away_is_told_apart() {
        check(&[sampled(false), freed()], &[("freed-functions", "1 stack has functions")]);
        let both = [("sampled-functions", "1 stack has"), ("freed-functions", "2 stacks have")];
        check(&[freed(), sampled(true), freed()], &both);
    }
}
