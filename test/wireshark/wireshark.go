// SPDX-License-Identifier: Apache-2.0

// Package wireshark has Wireshark judge frames that tests keep in files of the format pcap.
package wireshark

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/must"
)

// Verdict is what Wireshark finds in the files of a directory.
type Verdict struct {
	Files, Frames int
	// Distinct is the number of frames with other bytes than all frames before. Only these are judged.
	Distinct int
	// Types are the distinct frames by Ethernet type.
	Types map[uint16]int
	// Faults has a text for each fault, which begins with the name of the file.
	Faults []string
}

func (v Verdict) String() string {
	return fmt.Sprintf("%d frames of %d networks, %d of them distinct: tshark finds %d faults\n%s",
		v.Frames, v.Files, v.Distinct, len(v.Faults), strings.Join(v.Faults, "\n"))
}

// Judge reads the files of a directory whose names end with .pcap. It is an error if they have no frame.
func Judge(ctx context.Context, dir string) (v Verdict, err error) {
	defer must.CatchIn(&err, "judge the frames in %s", dir)
	v.Types = map[uint16]int{}
	files := must.Value(filepath.Glob(filepath.Join(dir, "*.pcap")))
	var distinct []Frame
	var origin []string // the file of each distinct frame
	known := map[string]bool{}
	for _, path := range files {
		all := readFile(path)
		v.Frames += len(all)
		for _, f := range all {
			if !known[string(f.Data)] {
				known[string(f.Data)] = true
				distinct, origin = append(distinct, f), append(origin, filepath.Base(path))
				v.Types[binary.BigEndian.Uint16(f.Data[12:])]++
			}
		}
	}
	must.That(len(distinct) > 0, "there is none")
	v.Files, v.Distinct = len(files), len(distinct)
	faults, err := Faults(ctx, distinct)
	for _, f := range faults {
		v.Faults = append(v.Faults, fmt.Sprintf("%s: %s: %x", origin[f.Frame], f.Text, distinct[f.Frame].Data))
	}
	return v, err
}

func readFile(path string) []Frame {
	file := must.Value(os.Open(path))
	defer file.Close()
	all, err := Read(file)
	must.Done(err, "judge %s", path)
	return all
}

// Fault is a frame that Wireshark finds malformed, or with an error or a wrong checksum.
type Fault struct {
	// Frame is the index of the frame in those that were judged.
	Frame int
	// Text is the summary of the frame.
	Text string
}

// Faults runs tshark, of the Debian package of this name, over frames. It does not know the claim
// protocol: of claims and acks it judges the Ethernet header only.
func Faults(ctx context.Context, all []Frame) (_ []Fault, err error) {
	defer must.Catch(&err)
	dir := must.Value(os.MkdirTemp("", "frames"))
	defer os.RemoveAll(dir)
	content := Header()
	for _, f := range all {
		content = append(content, f.Record()...)
	}
	path := filepath.Join(dir, "frames.pcap")
	must.OK(os.WriteFile(path, content, 0o600))
	const severityError = "0x00800000"
	cmd := exec.CommandContext(ctx, "tshark", "-n", "-r", path, "-T", "fields", "-e", "frame.number", "-e", "_ws.col.Info", "-Y",
		"_ws.malformed || _ws.short || _ws.expert.severity == "+severityError+` || icmpv6.checksum.status == "Bad" || ip.checksum.status == "Bad"`)
	cmd.Env = append(slices.Clone(os.Environ()), "HOME="+dir) // no preferences of this machine
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	must.That(err == nil, "run tshark over %d frames: %w: %s", len(all), err, &errs)
	var faults []Fault
	for line := range strings.Lines(out.String()) {
		number, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.Atoi(number)
		must.That(err == nil, "read the output of tshark: %q has no number of a frame", line)
		faults = append(faults, Fault{n - 1, text})
	}
	return faults, nil
}

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
