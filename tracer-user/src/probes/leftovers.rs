//! Breakpoints that a killed tool leaves behind, and how another process takes them out.
//!
//! To set a breakpoint or to take it out, the kernel writes to the code of a process on behalf of
//! the thread that asked, and does not for a thread that has been told to die ("failed to
//! unregister, leaking uprobe"). The tool's descriptors are closed whatever happens to it; but one
//! that is being opened or closed when the signal comes can leave a breakpoint that belongs to
//! nobody: it would cost the target a trap for each call as long as it lives. The kernel still
//! knows it by its file and offset, and whoever sets and removes a probe there has it look through
//! all processes again.

use std::{
    fs, io,
    io::{IoSlice, IoSliceMut},
    os::{
        fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::fs::MetadataExt as _,
    },
};

use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};
use rustc_hash::FxHashSet;

use super::{ProbeError, syscall};
use crate::target::perf_event::PerfEvent;

/// Sites in one message: far fewer bytes than a socket takes.
const PART: usize = 1 << 12;
/// The message that there is nothing to be taken out.
const OVER: &[u8] = b"\n";

/// The sites that were told, by the file's device and inode.
#[derive(Default)]
pub(super) struct Told(FxHashSet<(u64, u64, u64)>);

impl Told {
    /// Tells the process at the socket's other end of sites that are about to get a probe, unless
    /// it knows them.
    ///
    /// # Errors
    /// When it does not listen any more.
    pub(super) fn tell(
        &mut self,
        socket: impl AsFd,
        file: &fs::File,
        offsets: impl Iterator<Item = u64>,
    ) -> io::Result<()> {
        let meta = file.metadata()?;
        let site = |offset: u64| (meta.dev(), meta.ino(), offset);
        let offsets: Vec<u64> = offsets.filter(|offset| !self.0.contains(&site(*offset))).collect();
        for part in offsets.chunks(PART) {
            let bytes: Vec<u8> = part.iter().flat_map(|offset| offset.to_ne_bytes()).collect();
            let files = [file.as_raw_fd()];
            send(&socket, &bytes, &[ControlMessage::ScmRights(&files)])?;
            self.0.extend(part.iter().copied().map(site));
        }
        Ok(())
    }
}

/// Tells it that every probe has been removed.
pub(super) fn tell_over(socket: impl AsFd) -> io::Result<()> {
    send(&socket, OVER, &[])
}

fn send(socket: &impl AsFd, bytes: &[u8], with: &[ControlMessage<'_>]) -> io::Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    let bytes = [IoSlice::new(bytes)];
    sendmsg::<()>(socket, &bytes, with, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// What is to be taken out if the tool does not do it itself.
#[derive(Default)]
pub(super) struct Leftovers {
    sites: Vec<(OwnedFd, Vec<u64>)>,
}

/// What came from the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Further sites.
    Sites,
    /// Every probe has been removed.
    Over,
    /// The tool has closed its end.
    Closed,
}

impl Leftovers {
    /// Receives one message; waits for it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn receive(&mut self, socket: impl AsFd) -> io::Result<News> {
        let mut bytes = vec![0; PART * 8];
        let mut control = nix::cmsg_space!([RawFd; 1]);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let socket = socket.as_fd().as_raw_fd();
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(socket, &mut into, Some(&mut control), flags)?;
        let n_bytes = message.bytes;
        let mut files = message.cmsgs()?.filter_map(|control| match control {
            ControlMessageOwned::ScmRights(files) => files.first().copied(),
            _ => None,
        });
        // SAFETY: the kernel has made this descriptor for the message; nobody else knows it.
        let file = files.next().map(|file| unsafe { OwnedFd::from_raw_fd(file) });
        match (file, n_bytes) {
            (_, 0) => return Ok(News::Closed),
            (_, n) if n == OVER.len() => return Ok(News::Over),
            (None, _) => return Err(io::Error::other("sites without their file")),
            (Some(file), _) => {
                let (words, _) = bytes[..n_bytes].as_chunks();
                self.sites
                    .push((file, words.iter().map(|word| u64::from_ne_bytes(*word)).collect()));
            }
        }
        Ok(News::Sites)
    }

    /// Takes the breakpoints at these sites out of every process, save those that somebody owns.
    ///
    /// # Errors
    /// When a probe cannot be set at one of the sites; the others have been seen to.
    pub(super) fn take_out(&self) -> Result<(), ProbeError> {
        let path = "/sys/bus/event_source/devices/uprobe/type";
        let read = |error| ProbeError::Read { path: path.to_owned(), error };
        let kind = fs::read_to_string(path).map_err(read)?;
        let kind = kind.trim().parse().map_err(|_| read(io::ErrorKind::InvalidData.into()))?;
        let mut first_error = Ok(());
        for (file, offsets) in &self.sites {
            let path = syscall::path_of(file.as_fd());
            for offset in offsets {
                let event = PerfEvent {
                    kind,
                    config: 0,
                    flags: DISABLED,
                    details: [path.as_ptr() as u64, *offset],
                };
                let ask = |error| ProbeError::Ask { what: "leftover breakpoints", error };
                // For this process alone; closed at once.
                first_error = first_error.and(event.open_for_self().map(drop).map_err(ask));
            }
        }
        first_error
    }
}

/// The event does not count.
const DISABLED: u64 = 1;

/// What the other process makes of a message of these bytes: the places in this file, if it comes with
/// one. `None` where it is no message of sites.
pub(crate) fn heard(bytes: &[u8], file: Option<&fs::File>) -> io::Result<Option<Vec<u64>>> {
    let (here, there) = pair()?;
    let files = file.map(|file| [file.as_raw_fd()]);
    let with: Vec<_> = files.iter().map(|files| ControlMessage::ScmRights(files)).collect();
    send(&here, bytes, &with)?;
    let mut leftovers = Leftovers::default();
    let news = leftovers.receive(&there)?;
    Ok(leftovers.sites.pop().filter(|_| news == News::Sites).map(|(_, places)| places))
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        super::pair().expect("two sockets")
    }

    #[test]
    fn sites_arrive_with_their_file_and_once() {
        let (here, there) = pair();
        let file = fs::File::open("/proc/self/exe").expect("the test itself");
        let (mut told, mut leftovers) = (Told::default(), Leftovers::default());
        told.tell(&here, &file, [1, 0x1_0000_0002].into_iter()).expect("to be sent");
        told.tell(&here, &file, [1].into_iter()).expect("nothing to be sent");
        told.tell(&here, &file, [1, 3].into_iter()).expect("to be sent");
        tell_over(&here).expect("to be sent");
        drop(here);
        let news: Vec<News> =
            (0..4).map(|_| leftovers.receive(&there).expect("a message")).collect();
        assert_eq!(news, [News::Sites, News::Sites, News::Over, News::Closed]);
        let sites: Vec<&[u64]> = leftovers.sites.iter().map(|(_, sites)| &**sites).collect();
        assert_eq!(sites, [&[1, 0x1_0000_0002][..], &[3]]);
        for (received, _) in &leftovers.sites {
            let received = fs::File::from(received.try_clone().expect("a descriptor"));
            let id = |file: &fs::File| file.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
            assert_eq!(id(&received), id(&file));
        }
    }

    #[test]
    fn more_sites_than_a_message_holds_all_arrive() {
        let (here, there) = pair();
        let file = fs::File::open("/proc/self/exe").expect("the test itself");
        let sites = 0..u64::try_from(PART).expect("small") * 2 + 1;
        let sender = std::thread::spawn(move || {
            Told::default().tell(&here, &file, sites).expect("to be sent");
        });
        let mut leftovers = Leftovers::default();
        while leftovers.receive(&there).expect("a message") == News::Sites {}
        sender.join().expect("the sender ends");
        let all: Vec<u64> = leftovers.sites.iter().flat_map(|(_, sites)| sites).copied().collect();
        assert_eq!(all, (0..PART as u64 * 2 + 1).collect::<Vec<_>>());
    }

    #[test]
    fn who_does_not_listen_is_an_error() {
        let (here, there) = pair();
        drop(there);
        let file = fs::File::open("/proc/self/exe").expect("the test itself");
        let mut told = Told::default();
        assert!(told.tell(&here, &file, [1].into_iter()).is_err());
        // What did not arrive was not told.
        assert!(told.tell(&here, &file, [1].into_iter()).is_err());
    }
}
