//! Calls with the same answer in every file system here: nothing is written, and there is nothing to flush, seek,
//! control or poll.
#![forbid(unsafe_code)]

/// These methods of [`fuser::Filesystem`].
macro_rules! answers {
    () => {
        fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
            // Nothing to flush; after ENOSYS the kernel does not ask again.
            reply.error(Errno::ENOSYS);
        }

        fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
            reply.ok();
        }

        fn access(&self, _: &Request, _: INodeNo, _: fuser::AccessFlags, reply: ReplyEmpty) {
            // The kernel checks modes itself (default_permissions).
            reply.ok();
        }

        fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
            reply.ok();
        }

        // No holes, no ioctls, no polling: after the first ENOSYS the kernel does not ask again.

        fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: fuser::ReplyLseek) {
            reply.error(Errno::ENOSYS);
        }

        fn ioctl(
            &self,
            _: &Request,
            _: INodeNo,
            _: FileHandle,
            _: fuser::IoctlFlags,
            _: u32,
            _: &[u8],
            _: u32,
            reply: fuser::ReplyIoctl,
        ) {
            reply.error(Errno::ENOSYS);
        }

        fn poll(
            &self,
            _: &Request,
            _: INodeNo,
            _: FileHandle,
            _: fuser::PollNotifier,
            _: fuser::PollEvents,
            _: fuser::PollFlags,
            reply: fuser::ReplyPoll,
        ) {
            reply.error(Errno::ENOSYS);
        }
    };
}

pub(super) use answers;
