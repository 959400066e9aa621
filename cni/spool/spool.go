// SPDX-License-Identifier: Apache-2.0

// Package spool stores the DEL calls that the agent did not answer. The plugin puts them there; the
// agent carries them out and removes them.
//
// There is one file for each attachment, which a repeated DEL replaces by rename.
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
	"github.com/fenceline/fenceline/internal/wholefile"
)

const (
	suffix = ".json"
	// separator stands between container ID and interface. CNI allows it in interface names but not
	// in container IDs, so the first one splits.
	separator = "@"
	// tempPrefix begins the name of a file that is still being written.
	tempPrefix = "."
	unfinished = tempPrefix + "put-"
	// abandoned is the age after which no plugin can still write an unfinished file.
	abandoned = time.Hour
)

// ErrMalformed means that a file in the spool holds no DEL call of the attachment in its name.
var ErrMalformed = errors.New("malformed spool file")

// Dir is the path of a spool. Plugin processes and the agent may use one spool at the same time.
type Dir string

// Put stores a call. Once it has returned nil, the call survives a crash of the machine. A chained
// DEL frees nothing and must not be stored.
func (d Dir) Put(r agentapi.DelRequest) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("store the DEL of %s in container %s in spool %s: %w", r.Interface, r.ContainerID, d, err)
		}
	}()
	name, err := fileName(r.Attachment)
	if err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	return wholefile.Store(d.path(name), unfinished+"*", text, 0o600)
}

// List returns the attachments with a call in the spool, sorted by container ID.
func (d Dir) List() ([]agentapi.Attachment, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read spool %s: %w", d, err)
	}
	var found []agentapi.Attachment
	for _, e := range entries {
		if a, ok := attachment(e.Name()); ok {
			found = append(found, a)
		}
	}
	return found, nil
}

// Get returns the call of the attachment, and false if there is none. The error wraps ErrMalformed
// if the file holds no call of the attachment.
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
		return agentapi.DelRequest{}, false, fmt.Errorf("read a spooled DEL: %w", err)
	}
	var r agentapi.DelRequest
	if err := json.Unmarshal(text, &r); err != nil {
		return agentapi.DelRequest{}, false, fmt.Errorf("%w %s: %w", ErrMalformed, d.path(name), err)
	}
	if r.Attachment != a {
		return agentapi.DelRequest{}, false, fmt.Errorf("%w %s: it holds the DEL of %s in container %s",
			ErrMalformed, d.path(name), r.Interface, r.ContainerID)
	}
	return r, true, nil
}

// Remove removes the call of the attachment. It succeeds if there is none.
func (d Dir) Remove(a agentapi.Attachment) error {
	name, err := fileName(a)
	if err != nil {
		return err
	}
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a spooled DEL: %w", err)
	}
	return nil
}

// Sweep removes the unfinished files of plugins that were killed.
func (d Dir) Sweep(now time.Time) error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("sweep spool %s: %w", d, err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), unfinished) || now.Sub(info.ModTime()) < abandoned {
			continue // a file without info was finished meanwhile
		}
		errs = append(errs, os.Remove(d.path(e.Name())))
	}
	return errors.Join(errs...)
}

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

// fileName returns the file name of an attachment. It refuses names that leave the directory, or
// from which the attachment cannot be read back.
func fileName(a agentapi.Attachment) (string, error) {
	name := a.ContainerID + separator + a.Interface + suffix
	if back, ok := attachment(name); !ok || back != a || strings.ContainsRune(name, filepath.Separator) {
		return "", fmt.Errorf("name the spool file of interface %q in container %q: these are not valid CNI names", a.Interface, a.ContainerID)
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
