#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# emulated.sh QEMU COMMAND [ARGUMENT...] runs a command. QEMU emulates its programs for arm64, and the
# programs that these start. The kernel keeps this rule for one user namespace (Linux 6.7), so that it
# ends with the command.
set -e
if [ "$1" != --inside ]; then
	exec unshare --user --map-root-user --mount "$0" --inside "$@"
fi
qemu=$2
shift 2
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf %s ":fenceline-arm64:M::$magic:$mask:$qemu:F" >/proc/sys/fs/binfmt_misc/register
exec "$@"
