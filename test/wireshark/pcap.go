// SPDX-License-Identifier: Apache-2.0

package wireshark

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	magic    = 0xa1b2c3d4
	version  = 4<<16 | 2
	ethernet = 1
	longest  = 1 << 16
	// headerLength and recordLength are the lengths of the header of a file and of a record.
	headerLength, recordLength = 24, 16
)

// Frame is an Ethernet frame and the time of its arrival.
type Frame struct {
	At   time.Time
	Data []byte
}

// Header returns the beginning of a file: pcap with microseconds, little-endian.
func Header() []byte { return words(magic, version, 0, 0, longest, ethernet) }

// Record returns what a file has of the frame, after the header and the records before.
func (f Frame) Record() []byte {
	n := uint32(len(f.Data))
	return append(words(uint32(f.At.Unix()), uint32(f.At.Nanosecond()/1000), n, n), f.Data...)
}

// Read returns the frames of a file that begins with Header.
func Read(file io.Reader) ([]Frame, error) {
	head := make([]byte, headerLength)
	if _, err := io.ReadFull(file, head); err != nil {
		return nil, fmt.Errorf("read the header of a pcap file: %w", err)
	}
	if string(head) != string(Header()) {
		return nil, errors.New("read the header of a pcap file: it is not one of this package's")
	}
	var all []Frame
	for {
		head := make([]byte, recordLength)
		_, err := io.ReadFull(file, head)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		length := binary.LittleEndian.Uint32(head[8:])
		if err == nil && length > longest {
			err = fmt.Errorf("%d bytes are too many", length)
		}
		data := make([]byte, min(length, longest))
		if err == nil {
			_, err = io.ReadFull(file, data)
		}
		if err != nil {
			return nil, fmt.Errorf("read frame %d of a pcap file: %w", len(all)+1, err)
		}
		at := time.Unix(int64(binary.LittleEndian.Uint32(head)), int64(binary.LittleEndian.Uint32(head[4:]))*1000)
		all = append(all, Frame{at, data})
	}
}

func words(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}
