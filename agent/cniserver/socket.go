// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// socket is a listening unix socket and its file.
type socket struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// listen creates the socket under a temporary name, restricts it to root, and renames it. The
// rename replaces the socket of a killed agent, and no process sees a socket with wider
// permissions. The lock of the journal ensures that no other agent runs.
func listen(path string) (s *socket, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of the socket: %w", err)
	}
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the unfinished socket of an earlier agent: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", temporary, err)
	}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if err := os.Chmod(temporary, 0o600); err != nil {
		return nil, fmt.Errorf("restrict the socket to root: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return nil, fmt.Errorf("rename the socket: %w", err)
	}
	// The listener would remove the temporary name.
	l.SetUnlinkOnClose(false)
	file, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("stat the socket: %w", err)
	}
	return &socket{UnixListener: l, path: path, file: file}, nil
}

// Close stops listening. It removes the socket's file, unless another agent has replaced it.
func (s *socket) Close() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		os.Remove(s.path)
	}
	return s.UnixListener.Close()
}
