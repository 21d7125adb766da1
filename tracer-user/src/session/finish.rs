//! From books to a report: judge, name the stacks, write the folder.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    process::ExitStatus,
};

use anyhow::Context as _;
use jiff::Zoned;

use super::{DriveError, Plan, Tracer, processes, progress::Progress, scripts, stack_quality};
use crate::{
    batches::{self, Change},
    exit,
    growth::{self, Budget, Growth, Losses, Notice, Outcome, judge, notices},
    ledger::Purpose,
    report::{
        GroupBy, Options,
        folder::Folder as Files,
        merge,
        model::{self, Session},
    },
    stacks::StackId,
    target::process::kernel_release,
    units::plural,
};

/// How the measuring came to its end.
pub(super) enum Ending {
    /// As planned.
    Complete,
    /// The target came to an end of its own while it was watched, and said that all is well.
    Exited,
    /// Somebody asked to stop.
    Interrupted,
    /// The target was gone.
    TargetEnded,
    /// A batch did not come to its end, or the target failed.
    Failed(DriveError),
}

impl Ending {
    /// With how the target ended, where that is known, and what it had not done by then.
    pub(super) fn explained(
        self,
        status: impl FnOnce() -> Option<ExitStatus>,
        too_early: &'static str,
    ) -> Self {
        match self {
            Self::TargetEnded => {
                let status = status();
                let how = status.map(|status| format!(" ({})", super::drive::ended(status)));
                Self::Failed(DriveError::TargetEnded { how: how.unwrap_or_default(), too_early })
            }
            other => other,
        }
    }
}

/// A session that is written.
pub struct Finished {
    /// All of it.
    pub session: Session,
    /// Where it lies.
    pub folder: PathBuf,
}

/// The session's folder, made before anything is measured.
pub(super) struct Folder {
    files: Files,
    started: Zoned,
}

impl Folder {
    /// Makes the folder that the plan names, or one that is named after the time.
    pub(super) fn prepare(plan: &Plan) -> anyhow::Result<Self> {
        let started = Zoned::now();
        let path = match &plan.output {
            Some(path) => path.clone(),
            None => PathBuf::from(started.strftime("outlive-%Y%m%d-%H%M%S").to_string()),
        };
        Ok(Self { files: Files::create(&path)?, started })
    }

    /// A file of another kind in the folder.
    pub(super) fn create(&self, name: &str) -> anyhow::Result<File> {
        let path = self.files.path().join(name);
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Keeps what was measured so far, in case that the tool does not come to its end.
    pub(super) fn keep(&self, plan: &Plan, tracer: &Tracer) -> anyhow::Result<()> {
        let losses = tracer.losses()?;
        let mut session = self.session(plan, tracer, &losses)?;
        session.verdict = model::Verdict::Inconclusive;
        session.exit_code = exit::INCONCLUSIVE;
        session.reasons = vec!["unfinished: the measurement was not finished".to_owned()];
        self.files.keep(&session)?;
        Ok(())
    }

    /// Judges, names the stacks and writes everything.
    pub(super) fn finish(
        &self,
        plan: &Plan,
        tracer: &Tracer,
        ending: &Ending,
        is_test: bool,
    ) -> anyhow::Result<Finished> {
        let losses = tracer.losses()?;
        let mut session = self.session(plan, tracer, &losses)?;
        let mut growth = Growth::over(tracer.batches());
        // A call that failed leaves no block behind, but it was seen.
        growth.saw_calls |= 0 < tracer.failed_calls()?;
        let budget = plan.budget.unwrap_or(Budget { heap_bytes_per_batch: 0 });
        let is_judged = is_test || plan.budget.is_some();
        let judged = judge(&growth, budget, &losses);
        (session.verdict, session.reasons) = verdict(&judged, &doubts(tracer, ending), ending);
        if !is_judged && session.verdict != model::Verdict::Error {
            session.reasons.insert(0, NOT_JUDGED.to_owned());
            session.reasons.retain(|reason| !reason.starts_with(TOO_FEW));
        }
        session.exit_code = match (session.verdict, is_judged) {
            (model::Verdict::Error, _) => exit::TARGET,
            (model::Verdict::Pass, _) | (_, false) => exit::PASS,
            (model::Verdict::Growth, true) => exit::GROWTH,
            (model::Verdict::Inconclusive, true) => exit::INCONCLUSIVE,
        };
        let changed = tracer.batches().changed_stacks();
        let progress = Progress::line(plan.progress);
        let noun = plural(changed.len() as u64, "stack", "stacks");
        progress.stage(format!("naming {} {noun}", changed.len()));
        session.stacks = stacks(tracer, &changed);
        session.mappings = merge::mappings(mappings(tracer));
        processes::name_makers(tracer, &mut session.processes);
        session.stacks = merge::stacks(session.stacks);
        let notices = notices(&growth, tracer.batches());
        session.notices = notices
            .iter()
            // One batch is compared with nothing.
            .filter(|notice| growth.measured > 1 || !matches!(notice, Notice::NoWarmUp))
            .map(|notice| model::Notice {
                name: notice.name().to_owned(),
                text: notice.to_string(),
            })
            .collect();
        session.notices.extend(matches!(ending, Ending::Exited).then(exited));
        session
            .notices
            .extend(stack_quality::notices(&session.stack_quality, tracer.tables_left_out()));
        session.notices.extend(unsearched(tracer));
        session.notices.extend(scripts::notices(&session.stacks));
        session.notices.extend(processes::not_followed(tracer)?);
        progress.stage("writing the session");
        self.files.write(
            &session,
            &Options { top: 20, width: 80, color: false, group_by: GroupBy::Stack },
        )?;
        Ok(Finished { session, folder: self.files.path().to_owned() })
    }

    /// Everything but the verdict and the stacks.
    fn session(&self, plan: &Plan, tracer: &Tracer, losses: &Losses) -> anyhow::Result<Session> {
        let process = tracer.process();
        let batches = tracer.batches();
        let growth = Growth::over(batches);
        let measured = u32::try_from(batches.measured().len()).unwrap_or(u32::MAX);
        let slope = growth.slope;
        Ok(Session {
            schema: model::SCHEMA.to_owned(),
            tool: model::Tool {
                name: env!("CARGO_PKG_NAME").to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            command: plan.command.clone(),
            started: self.started.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
            duration_s: self.started.duration_until(&Zoned::now()).as_secs_f64(),
            target: model::Target {
                pid: process.pid,
                exe: process.exe.to_string_lossy().into_owned(),
                cmdline: process
                    .cmdline
                    .iter()
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect(),
                kernel: kernel_release()
                    .context("cannot ask for the kernel's release")?
                    .to_string_lossy()
                    .into_owned(),
            },
            verdict: model::Verdict::Inconclusive,
            exit_code: exit::INCONCLUSIVE,
            reasons: Vec::new(),
            notices: Vec::new(),
            budget: model::Budget {
                heap_bytes_per_batch: plan.budget.map_or(0, |budget| budget.heap_bytes_per_batch),
            },
            warmup: batches.warmup(),
            measured,
            batches: batches
                .all()
                .iter()
                .map(|each| batch(each, tracer.sees_whole_heap()))
                .collect(),
            growth: model::Growth {
                heap_bytes: growth.net.bytes,
                heap_blocks: growth.net.blocks,
                heap_bytes_per_batch: slope.map_or(0.0, |slope| slope.bytes_per_batch),
                interval: slope
                    .and_then(|slope| slope.interval)
                    .map(|interval| [interval.low, interval.high]),
                grown_bytes: growth.grown_bytes,
                shrunk_bytes: growth.shrunk_bytes,
                mapped_bytes: batches.mapped_growth(Purpose::Own).bytes,
                ended_bytes: batches.ended().bytes,
                ended_blocks: batches.ended().blocks,
            },
            stacks: Vec::new(),
            mappings: Vec::new(),
            processes: processes::rows(tracer),
            processes_omitted: tracer.omitted_members(),
            holds: processes::holds(tracer),
            pauses: processes::pauses(tracer),
            stack_quality: stack_quality::of(tracer),
            losses: losses.entries().map(|(key, count)| (key.to_owned(), count)).collect(),
        })
    }
}

fn batch(batch: &batches::Batch, is_whole: bool) -> model::Batch {
    let totals = &batch.totals;
    let resident = &batch.facts.resident;
    let mapped = |purpose| batch.mapped.held(purpose).bytes;
    let arena_bytes = mapped(Purpose::Arena);
    model::Batch {
        index: batch.index,
        kind: match batch.kind {
            batches::Kind::Warmup => model::Kind::Warmup,
            batches::Kind::Measured => model::Kind::Measured,
        },
        label: batch.facts.label.clone(),
        units: batch.facts.units.clone(),
        duration_s: batch.facts.duration_s,
        heap_bytes: batch.outstanding.bytes,
        heap_blocks: batch.outstanding.blocks,
        allocated_bytes: totals.allocated.bytes,
        allocated_blocks: totals.allocated.blocks,
        freed_blocks: totals.freed.blocks,
        unmatched_frees: totals.unmatched_frees,
        inherited_frees: totals.inherited_frees,
        rss_bytes: resident.rss,
        pss_bytes: resident.pss,
        anonymous_bytes: resident.anonymous,
        swap_bytes: resident.swap,
        mapped_bytes: mapped(Purpose::Own),
        arena_bytes,
        shared_bytes: mapped(Purpose::Shared),
        thread_stack_bytes: mapped(Purpose::ThreadStack),
        file_bytes: mapped(Purpose::File),
        reserved_bytes: mapped(Purpose::Reserved).saturating_add(mapped(Purpose::ArenaReserved)),
        retained_bytes: is_whole.then(|| arena_bytes.saturating_sub(batch.outstanding.bytes)),
    }
}

/// Said where nobody asked for a judgement: the exit code then means that tracing worked.
const NOT_JUDGED: &str = "not-judged: no --budget was given, so growth does not change the exit \
                          code";
/// Beginning of the reason that says how many batches a judgement needs.
const TOO_FEW: &str = "too-few-batches:";
/// Beginning of the reasons that name a loss.
const LOST: &str = "lost:";

/// The verdict with what only the session knows: how it ended, and what to doubt.
fn verdict(
    judged: &growth::Verdict,
    doubts: &[String],
    ending: &Ending,
) -> (model::Verdict, Vec<String>) {
    let mut reasons = judged.lines();
    if let Ending::Failed(error) = ending {
        reasons.retain(|reason| reason.starts_with(LOST));
        reasons.insert(0, format!("failed: {error}"));
        return (model::Verdict::Error, reasons);
    }
    let verdict = match judged.outcome {
        _ if !doubts.is_empty() => model::Verdict::Inconclusive,
        Outcome::Pass => model::Verdict::Pass,
        Outcome::Growth => model::Verdict::Growth,
        Outcome::Inconclusive => model::Verdict::Inconclusive,
    };
    (verdict, [doubts, &reasons].concat())
}

/// Why no verdict can be given, whatever the figures are.
fn doubts(tracer: &Tracer, ending: &Ending) -> Vec<String> {
    let mut doubts = Vec::new();
    if matches!(ending, Ending::Interrupted) {
        doubts.push("interrupted: the measurement was stopped before its end".to_owned());
    }
    let late = tracer.late_allocators();
    if !late.is_empty() {
        let objects = late.join(", ");
        doubts.push(format!(
            "late-allocator: {objects} came into the target while batches ran, and what was \
             allocated there before is not in the figures; let the warm-up load it, or name it with \
             --library"
        ));
    }
    doubts.extend(tracer.unprobed().iter().map(|error| format!("unprobed: {error}")));
    let unseen = tracer.blind_spots();
    if !unseen.is_empty() {
        doubts.push(format!(
            "untraceable: blocks may have passed through {}, which cannot be probed, and are in no \
             figure; `outlive doctor -p {}` says why",
            unseen.join(", "),
            tracer.process().pid
        ));
    }
    doubts
}

/// The stacks that changed, named.
fn stacks(tracer: &Tracer, changed: &[(StackId, Change)]) -> Vec<model::Stack> {
    let ids: Vec<StackId> = changed.iter().map(|(id, _)| *id).collect();
    let named = tracer.named(&ids);
    changed
        .iter()
        .zip(named)
        .map(|((id, change), frames)| model::Stack {
            family: family(tracer, *id),
            bytes: change.bytes,
            blocks: change.blocks,
            per_batch: tracer.batches().changes_of(*id).iter().map(|change| change.bytes).collect(),
            end: Some(stack_quality::end(tracer, *id)),
            frames,
        })
        .collect()
}

/// The origins of mappings that changed, named.
fn mappings(tracer: &Tracer) -> Vec<model::Mapping> {
    let changed = tracer.batches().changed_mappings();
    let hashes: Vec<u64> = changed.iter().map(|(origin, ..)| origin.stack).collect();
    let named = tracer.named_by_hash(&hashes);
    changed
        .iter()
        .zip(named)
        .map(|((origin, change, per_batch), frames)| model::Mapping {
            kind: origin.purpose.name().to_owned(),
            bytes: change.bytes,
            blocks: change.blocks,
            per_batch: per_batch.iter().map(|change| change.bytes).collect(),
            frames,
        })
        .collect()
}

fn family(tracer: &Tracer, id: StackId) -> String {
    let family = tracer.ledger().stacks().family(id);
    let object = tracer.objects().iter().find(|object| Some(object.family) == family);
    object.map_or_else(|| "unknown".to_owned(), |object| object.family_name.clone())
}

/// That the target was done before the watch was.
fn exited() -> model::Notice {
    model::Notice {
        name: "target-exited".to_owned(),
        text: "the target exited with status 0 while it was watched, which ended the watch"
            .to_owned(),
    }
}

/// Objects that may be allocators and were not looked into.
fn unsearched(tracer: &Tracer) -> Option<model::Notice> {
    let objects = tracer.unsearched();
    let (first, more) = (objects.first()?, objects.len() - 1);
    let others = if more > 0 { format!(" and {more} others") } else { String::new() };
    Some(model::Notice {
        name: "unsearched".to_owned(),
        text: format!(
            "{}{others} could not be searched for an allocator ({}); blocks of one in there are in \
             no figure",
            first.path, first.reason
        ),
    })
}
