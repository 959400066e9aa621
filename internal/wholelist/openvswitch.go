// SPDX-License-Identifier: Apache-2.0

package wholelist

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// OVSSocket is the way to the database of Open vSwitch.
const OVSSocket = "/run/openvswitch/db.sock"

// OVSKind is the kernel's name for the kind of Open vSwitch's own links: its datapath, its bridges and internal ports.
const OVSKind = "openvswitch"

// ErrNoOVS: the database of Open vSwitch gives no answer. The kernel knows neither its bridges nor the VLANs of its ports.
var ErrNoOVS = errors.New("the database of Open vSwitch gives no answer")

// OVSBridge is a bridge of Open vSwitch.
type OVSBridge struct {
	Name       string          `json:"name"`
	Datapath   string          `json:"datapath_type"`
	FailMode   ovsSet[string]  `json:"fail_mode"`
	Controller ovsSet[ovsUUID] `json:"controller"`
	PortIDs    ovsSet[ovsUUID] `json:"ports"`
	Ports      []OVSPort       `json:"-"`
}

// OVSPort is a port of such a bridge.
type OVSPort struct {
	ID           ovsUUID         `json:"_uuid"`
	Name         string          `json:"name"`
	Mode         ovsSet[string]  `json:"vlan_mode"`
	Tag          ovsSet[int]     `json:"tag"`
	Trunks       ovsSet[int]     `json:"trunks"`
	InterfaceIDs ovsSet[ovsUUID] `json:"interfaces"`
	Interfaces   []OVSInterface  `json:"-"`
}

// OVSInterface is an interface of such a port. The kernel's own links have the type "" or "system".
type OVSInterface struct {
	ID   ovsUUID `json:"_uuid"`
	Name string  `json:"name"`
	Type string  `json:"type"`
}

// IsLink reports whether the interface is a link of the kernel that Open vSwitch has not made.
func (i OVSInterface) IsLink() bool { return i.Type == "" || i.Type == "system" }

// ovsTimeout bounds one question.
const ovsTimeout = 2 * time.Second

// OVS returns the bridges of Open vSwitch. Its error wraps ErrNoOVS.
func OVS() ([]OVSBridge, error) { return ovsAt(OVSSocket) }

// ovsAt reads three tables in one transaction (RFC 7047, section 4.1.3).
func ovsAt(socket string) (bridges []OVSBridge, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrNoOVS, err)
		}
	}()
	conn, err := net.DialTimeout("unix", socket, ovsTimeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(ovsTimeout)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, `{"id":0,"method":"transact","params":["Open_vSwitch",`+
		`{"op":"select","table":"Bridge","where":[],"columns":["name","datapath_type","fail_mode","controller","ports"]},`+
		`{"op":"select","table":"Port","where":[],"columns":["_uuid","name","vlan_mode","tag","trunks","interfaces"]},`+
		`{"op":"select","table":"Interface","where":[],"columns":["_uuid","name","type"]}]}`); err != nil {
		return nil, err
	}
	var answer struct {
		Result []struct {
			Rows json.RawMessage `json:"rows"`
		} `json:"result"`
	}
	var ports []OVSPort
	var interfaces []OVSInterface
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return nil, err
	}
	for i, rows := range []any{&bridges, &ports, &interfaces} {
		if i >= len(answer.Result) {
			return nil, errors.New("it refuses the question")
		}
		if err := json.Unmarshal(answer.Result[i].Rows, rows); err != nil {
			return nil, err
		}
	}
	for i, p := range ports {
		ports[i].Interfaces = having(interfaces, p.InterfaceIDs, func(i OVSInterface) ovsUUID { return i.ID })
	}
	for i, b := range bridges {
		bridges[i].Ports = having(ports, b.PortIDs, func(p OVSPort) ovsUUID { return p.ID })
	}
	return bridges, nil
}

// having returns the rows that have one of the IDs.
func having[T any](rows []T, ids []ovsUUID, id func(T) ovsUUID) []T {
	return slices.DeleteFunc(slices.Clone(rows), func(r T) bool { return !slices.Contains(ids, id(r)) })
}

// ovsUUID is ["uuid", "…"] in JSON (RFC 7047, section 5.1).
type ovsUUID [2]string

// ovsSet is ["set", […]] in JSON, or its only element.
type ovsSet[T any] []T

// UnmarshalJSON decodes a set.
func (s *ovsSet[T]) UnmarshalJSON(data []byte) error {
	var pair [2]json.RawMessage
	if json.Unmarshal(data, &pair) == nil && string(pair[0]) == `"set"` {
		return json.Unmarshal(pair[1], (*[]T)(s))
	}
	*s = make(ovsSet[T], 1)
	return json.Unmarshal(data, &(*s)[0])
}

// Untagged returns the VLAN of the frames without a tag of a port, and false if they have none in both directions.
// VLAN 0 is what Open vSwitch calls no VLAN.
func (p OVSPort) Untagged() (vid int, has bool) {
	switch p.mode() {
	case "access", "native-untagged":
		return p.tag(), true
	case "trunk":
		return 0, len(p.Trunks) == 0 || slices.Contains(p.Trunks, 0)
	}
	return 0, false
}

// Tagged reports whether a port has the frames of a VLAN with a tag, in both directions.
func (p OVSPort) Tagged(vid int) bool {
	mode, native := p.mode(), vid == p.tag() && p.mode() != "trunk"
	switch {
	case vid == 0 || !slices.Contains([]string{"native-tagged", "native-untagged", "trunk"}, mode):
		return false
	case native:
		return mode == "native-tagged"
	}
	return len(p.Trunks) == 0 || slices.Contains(p.Trunks, vid)
}

// mode returns the mode of a port, also if it is implied (ovs-vswitchd.conf.db(5), Port).
func (p OVSPort) mode() string {
	switch {
	case len(p.Mode) > 0:
		return p.Mode[0]
	case len(p.Tag) > 0:
		return "access"
	}
	return "trunk"
}

func (p OVSPort) tag() int { return append(slices.Clone(p.Tag), 0)[0] }
