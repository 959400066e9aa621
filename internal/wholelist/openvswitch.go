// SPDX-License-Identifier: Apache-2.0

package wholelist

import (
	"encoding/json"
	"errors"
	"fmt"
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
	Name         string          `json:"name"`
	Mode         ovsSet[string]  `json:"vlan_mode"`
	Tag          ovsSet[int]     `json:"tag"`
	Trunks       ovsSet[int]     `json:"trunks"`
	InterfaceIDs ovsSet[ovsUUID] `json:"interfaces"`
	Interfaces   []OVSInterface  `json:"-"`
}

// OVSInterface is an interface of such a port. The kernel's own links have the type "" or "system".
type OVSInterface struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// IsLink reports whether the interface is a link of the kernel that Open vSwitch has not made.
func (i OVSInterface) IsLink() bool { return i.Type == "" || i.Type == "system" }

// ovsTimeout bounds one question.
const ovsTimeout = 2 * time.Second

// OVS returns the bridges of Open vSwitch. Its error wraps ErrNoOVS.
func OVS() ([]OVSBridge, error) { return ovsAt(OVSSocket) }

func ovsAt(socket string) ([]OVSBridge, error) {
	bridges, err := askOVS(socket)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoOVS, err)
	}
	return bridges, nil
}

// askOVS reads three tables in one transaction (RFC 7047, section 4.1.3).
func askOVS(socket string) ([]OVSBridge, error) {
	conn, err := net.DialTimeout("unix", socket, ovsTimeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(ovsTimeout)); err != nil {
		return nil, err
	}
	type operation map[string]any
	selected := func(table string, columns ...string) operation {
		return operation{"op": "select", "table": table, "where": []any{}, "columns": append(columns, "_uuid", "name")}
	}
	request := map[string]any{"id": 0, "method": "transact", "params": []any{
		"Open_vSwitch",
		selected("Bridge", "datapath_type", "fail_mode", "controller", "ports"),
		selected("Port", "vlan_mode", "tag", "trunks", "interfaces"),
		selected("Interface", "type"),
	}}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return nil, err
	}
	var answer struct {
		Result []struct {
			Rows json.RawMessage `json:"rows"`
		} `json:"result"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return nil, err
	}
	if len(answer.Result) != 3 {
		return nil, fmt.Errorf("%d tables instead of 3, error %s", len(answer.Result), answer.Error)
	}
	var bridges []ovsRow[OVSBridge]
	var ports []ovsRow[OVSPort]
	var interfaces []ovsRow[OVSInterface]
	if err := errors.Join(
		json.Unmarshal(answer.Result[0].Rows, &bridges),
		json.Unmarshal(answer.Result[1].Rows, &ports),
		json.Unmarshal(answer.Result[2].Rows, &interfaces),
	); err != nil {
		return nil, err
	}
	for i := range ports {
		ports[i].row.Interfaces = rowsOf(interfaces, ports[i].row.InterfaceIDs)
	}
	var all []OVSBridge
	for _, b := range bridges {
		b.row.Ports = rowsOf(ports, b.row.PortIDs)
		all = append(all, b.row)
	}
	return all, nil
}

// ovsUUID is ["uuid", "…"] in JSON (RFC 7047, section 5.1).
type ovsUUID [2]string

// ovsRow is a row with its ID.
type ovsRow[T any] struct {
	id  ovsUUID
	row T
}

// UnmarshalJSON decodes a row.
func (r *ovsRow[T]) UnmarshalJSON(data []byte) error {
	var of struct {
		ID ovsUUID `json:"_uuid"`
	}
	err := errors.Join(json.Unmarshal(data, &of), json.Unmarshal(data, &r.row))
	r.id = of.ID
	return err
}

func rowsOf[T any](rows []ovsRow[T], ids []ovsUUID) (found []T) {
	for _, r := range rows {
		if slices.Contains(ids, r.id) {
			found = append(found, r.row)
		}
	}
	return found
}

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
	native := vid == p.tag() && p.mode() != "trunk"
	switch p.mode() {
	case "native-tagged", "native-untagged", "trunk":
		return vid != 0 && (native && p.mode() == "native-tagged" || !native && (len(p.Trunks) == 0 || slices.Contains(p.Trunks, vid)))
	}
	return false
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

func (p OVSPort) tag() int {
	if len(p.Tag) == 0 {
		return 0
	}
	return p.Tag[0]
}
