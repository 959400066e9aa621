package cniserver

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// socket is a listening unix socket that knows its own file.
type socket struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// listen makes the socket under a temporary name, restricts it to root, and
// renames it into place: it replaces the one that a killed agent left, and
// nobody meets it with wider permissions. That no other agent is alive is the
// journal's lock to ensure, not the socket's.
func listen(path string) (s *socket, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the socket: %w", err)
	}
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove an unfinished socket: %w", err)
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
		return nil, fmt.Errorf("restrict the socket: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return nil, fmt.Errorf("put the socket in its place: %w", err)
	}
	// The listener knows the temporary name only.
	l.SetUnlinkOnClose(false)
	file, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("look at the socket: %w", err)
	}
	return &socket{UnixListener: l, path: path, file: file}, nil
}

// Close stops listening and removes the socket's file, unless a successor has
// already put its own there.
func (s *socket) Close() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		os.Remove(s.path)
	}
	return s.UnixListener.Close()
}
