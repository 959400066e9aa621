package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
)

// unnamedPattern is of files that were made ahead. An entry that begins in one
// is in the journal from the first whole value on, and the file stays open: to
// name it, and to open it again, takes several times as long as the writes of
// an ADD, which wait for neither.
const unnamedPattern = ".entry-*.new"

// begin writes the first value of an entry to a file that was made ahead. The
// caller has locked the writer of the entry's path.
func (j *Journal) begin(k key, f *os.File, e Entry) error {
	if err := add(f, e); err != nil {
		return errors.Join(err, discard(f))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unnamed[k] = f
	return nil
}

// name gives the file of an entry its name, if it has none yet. The caller has
// locked the writer of path.
func (j *Journal) name(k key, path string) error {
	f := j.unnamedFile(k)
	if f == nil {
		return nil
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	j.mu.Lock()
	delete(j.unnamed, k)
	j.mu.Unlock()
	return f.Close()
}

// nameAll gives all files their names.
func (j *Journal) nameAll() error {
	var errs []error
	for _, k := range j.unnamedKeys() {
		path, err := j.path(k)
		if err == nil {
			w := j.writer(path)
			w.Lock()
			err = j.name(k, path)
			w.Unlock()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (j *Journal) unnamedFile(k key) *os.File {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return j.unnamed[k]
}

func (j *Journal) unnamedKeys() []key {
	j.mu.RLock()
	defer j.mu.RUnlock()
	keys := make([]key, 0, len(j.unnamed))
	for k := range j.unnamed {
		keys = append(keys, k)
	}
	return keys
}

// adopt names the files that a process before has left without a name. One
// without a whole value was spare, or its first write did not return.
func (j *Journal) adopt(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, unnamedPattern))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := j.adoptFile(path); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) adoptFile(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if bytes.IndexByte(data, '\n') < 0 {
		return os.Remove(path)
	}
	var e Entry
	if _, err := decodeNewest(data, &e); err != nil {
		return j.setAside(path, err)
	}
	named, err := j.path(key{e.ContainerID, e.Interface})
	if err != nil {
		return j.setAside(path, err)
	}
	return os.Rename(path, named)
}
