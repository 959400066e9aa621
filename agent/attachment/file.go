// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"

	"github.com/fenceline/fenceline/internal/wholefile"
)

// envelope is the content of a file: a value and the CRC-32C of its bytes. Without the checksum,
// JSON would read a flipped bit in an address as another address.
type envelope struct {
	CRC   uint32          `json:"crc32c"`
	Value json.RawMessage `json:"value"`
}

// files is the Disk of a directory.
type files struct{}

func (files) Replace(path string, e *Entry) error { return replace(path, e) }

func (files) Remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// replace writes a value to its file, without waiting for the disk.
func replace(path string, value any) error { return write(path, value, wholefile.Replace) }

// store is replace for values that must survive a loss of power.
func store(path string, value any) error { return write(path, value, wholefile.Store) }

func write(path string, value any, file func(path, pattern string, content []byte, mode fs.FileMode) error) error {
	data, err := encode(value)
	if err != nil {
		return err
	}
	return file(path, tempPattern, data, 0o600)
}

// load reads a file of replace or store. Any error but an *fs.PathError means that it is corrupt.
func load(path string, value any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return decode(data, value)
}

func encode(value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	// The JSON of an envelope. Marshalling an envelope would validate each byte of raw again.
	return fmt.Appendf(nil, `{"crc32c":%d,"value":%s}`+"\n", checksum(raw), raw), nil
}

// decode reads the value in the content of a file, which ends with its line.
func decode(data []byte, value any) error {
	if !bytes.HasSuffix(data, []byte("\n")) {
		return errors.New("the file is cut short")
	}
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	if sum := checksum(e.Value); sum != e.CRC {
		return fmt.Errorf("the checksum of the value is %#x, the file records %#x", sum, e.CRC)
	}
	return json.Unmarshal(e.Value, value)
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
