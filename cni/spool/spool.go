// Package spool keeps the DEL calls that the agent could not take. The plugin
// puts them there while the agent is away; the agent carries them out and
// removes them.
//
// There is one file for each attachment, so a repeated DEL replaces itself. A
// file appears by rename and is complete from then on.
package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fenceline/fenceline/cni/agentapi"
)

const (
	suffix = ".json"
	// separator stands between container ID and interface. CNI allows it in
	// interface names but not in container IDs, so the first one splits.
	separator = "@"
	// tempPrefix hides a file that is still being written.
	tempPrefix = "."
	unfinished = tempPrefix + "put-"
	// abandoned is the age of an unfinished file that no plugin writes any more.
	abandoned = time.Hour
)

// ErrMalformed says that a file in the spool is not a DEL call of the
// attachment that its name tells.
var ErrMalformed = errors.New("malformed spool file")

// Dir is the path of a spool. Plugin processes and the agent may use one spool
// at the same time.
type Dir string

// Put stores a call. When it returns nil the call survives a crash of the
// machine. A chained DEL, which frees nothing, is none to store.
func (d Dir) Put(r agentapi.DelRequest) (err error) {
	name, err := fileName(r.Attachment)
	if err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode DEL of %s: %w", name, err)
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("make the spool: %w", err)
	}
	f, err := os.CreateTemp(string(d), unfinished+"*")
	if err != nil {
		return fmt.Errorf("spool DEL of %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(text); err != nil {
		return fmt.Errorf("spool DEL of %s: %w", name, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("spool DEL of %s: %w", name, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("spool DEL of %s: %w", name, err)
	}
	if err := os.Rename(f.Name(), d.path(name)); err != nil {
		return fmt.Errorf("spool DEL of %s: %w", name, err)
	}
	return d.sync()
}

// List returns the attachments that have a call in the spool, in the order of
// their names. A spool that does not exist yet is empty.
func (d Dir) List() ([]agentapi.Attachment, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the spool: %w", err)
	}
	var found []agentapi.Attachment
	for _, e := range entries {
		if a, ok := attachment(e.Name()); ok {
			found = append(found, a)
		}
	}
	return found, nil
}

// Get returns the call of the attachment, and false when there is none. The
// error wraps ErrMalformed when the file does not hold what its name says.
func (d Dir) Get(a agentapi.Attachment) (agentapi.DelRequest, bool, error) {
	name, err := fileName(a)
	if err != nil {
		return agentapi.DelRequest{}, false, err
	}
	text, err := os.ReadFile(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return agentapi.DelRequest{}, false, nil
	}
	if err != nil {
		return agentapi.DelRequest{}, false, fmt.Errorf("read spooled DEL: %w", err)
	}
	var r agentapi.DelRequest
	if err := json.Unmarshal(text, &r); err != nil {
		return agentapi.DelRequest{}, false, fmt.Errorf("%w %s: %w", ErrMalformed, d.path(name), err)
	}
	if r.Attachment != a {
		return agentapi.DelRequest{}, false, fmt.Errorf("%w %s: it names %s %s",
			ErrMalformed, d.path(name), r.ContainerID, r.Interface)
	}
	return r, true, nil
}

// Remove takes the call of the attachment out; it succeeds when there is none.
func (d Dir) Remove(a agentapi.Attachment) error {
	name, err := fileName(a)
	if err != nil {
		return err
	}
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove spooled DEL: %w", err)
	}
	return nil
}

// Sweep removes what plugins left that were killed while they wrote.
func (d Dir) Sweep(now time.Time) error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("sweep the spool: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), unfinished) || now.Sub(info.ModTime()) < abandoned {
			continue // also if it was finished in between
		}
		errs = append(errs, os.Remove(d.path(e.Name())))
	}
	return errors.Join(errs...)
}

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

// sync makes the rename durable.
func (d Dir) sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return fmt.Errorf("sync the spool: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync the spool %s: %w", d, err)
	}
	return nil
}

// fileName refuses what would leave the directory or could not be read back.
// skel has validated both parts already when they come from a runtime.
func fileName(a agentapi.Attachment) (string, error) {
	name := a.ContainerID + separator + a.Interface + suffix
	if back, ok := attachment(name); !ok || back != a || strings.ContainsRune(name, filepath.Separator) {
		return "", fmt.Errorf("attachment %q %q cannot be spooled", a.ContainerID, a.Interface)
	}
	return name, nil
}

func attachment(name string) (agentapi.Attachment, bool) {
	stem, ok := strings.CutSuffix(name, suffix)
	if !ok || strings.HasPrefix(name, tempPrefix) {
		return agentapi.Attachment{}, false
	}
	container, iface, ok := strings.Cut(stem, separator)
	if !ok || container == "" || iface == "" {
		return agentapi.Attachment{}, false
	}
	return agentapi.Attachment{ContainerID: container, Interface: iface}, true
}
