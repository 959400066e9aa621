package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// envelope is what a file holds: a value and the CRC-32C of its bytes. JSON
// alone would read a flipped bit in an address as another address.
type envelope struct {
	CRC   uint32          `json:"crc32c"`
	Value json.RawMessage `json:"value"`
}

// replace replaces a file by rename, so that it holds the old value or the new
// one whenever this process ends. After a loss of power it may hold either, or
// be cut short.
func replace(path string, value any) error {
	return write(path, value, func(*os.File) error { return nil })
}

// extend adds a newer value to a file that replace has written: a tenth of its
// time. Until it returns the file holds the older value.
func extend(path string, value any) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	return errors.Join(add(f, value), f.Close())
}

// add writes a value behind those that an open file holds.
func add(f *os.File, value any) error {
	data, err := encode(value)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return err
}

// store is replace for what must outlive the machine's end as well: the file
// holds the old value or the new one then, and the new one once store returned.
func store(path string, value any) error {
	if err := write(path, value, (*os.File).Sync); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func write(path string, value any, settle func(*os.File) error) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), tempPattern)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	if err = add(temp, value); err == nil {
		err = settle(temp)
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// load reads what store wrote. An error that is no *os.PathError means that the file is corrupt.
func load(path string, value any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return decode(data, value)
}

// loadNewest reads what replace and extend wrote, as decodeNewest does.
func loadNewest(path string, value any) (cut bool, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	return decodeNewest(data, value)
}

// decodeNewest finds the last value. cut tells that the last write did not
// finish, so that the value is the one before.
func decodeNewest(data []byte, value any) (cut bool, err error) {
	whole := bytes.LastIndexByte(data, '\n') + 1
	if whole > 0 && whole < len(data) {
		data, cut = data[:whole], true
	}
	if n := len(data); n > 0 {
		data = data[bytes.LastIndexByte(data[:n-1], '\n')+1:]
	}
	return cut, decode(data, value)
}

func encode(value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	// As an envelope is encoded, which would look at each byte again.
	return fmt.Appendf(nil, `{"crc32c":%d,"value":%s}`+"\n", checksum(raw), raw), nil
}

func decode(data []byte, value any) error {
	// A file cut short at its very end has lost the newline only; that too is
	// a write that did not finish.
	if !bytes.HasSuffix(data, []byte("\n")) {
		return errors.New("the file is cut short")
	}
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	if sum := checksum(e.Value); sum != e.CRC {
		return fmt.Errorf("checksum is %#x, the file says %#x", sum, e.CRC)
	}
	return json.Unmarshal(e.Value, value)
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// syncDir makes renames and removals in a directory last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
