// SPDX-License-Identifier: Apache-2.0

package wholelist

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// The answer has the form of that of ovsdb-server 3.1.
func TestTheDatabaseOfOpenVSwitchIsRead(t *testing.T) {
	const answer = `{"error":null,"id":0,"result":[` +
		`{"rows":[{"_uuid":["uuid","b1"],"controller":["set",[]],"datapath_type":"","fail_mode":"secure","name":"br0","ports":["set",[["uuid","p1"],["uuid","p2"]]]},` +
		`{"_uuid":["uuid","b2"],"controller":["uuid","c1"],"datapath_type":"netdev","fail_mode":["set",[]],"name":"br1","ports":["uuid","p3"]}]},` +
		`{"rows":[{"_uuid":["uuid","p1"],"interfaces":["uuid","i1"],"name":"veth1","tag":100,"trunks":["set",[]],"vlan_mode":["set",[]]},` +
		`{"_uuid":["uuid","p2"],"interfaces":["set",[["uuid","i2"],["uuid","i3"]]],"name":"bond","tag":["set",[]],"trunks":["set",[7,8]],"vlan_mode":"trunk"},` +
		`{"_uuid":["uuid","p3"],"interfaces":["uuid","i4"],"name":"br1","tag":["set",[]],"trunks":9,"vlan_mode":["set",[]]}]},` +
		`{"rows":[{"_uuid":["uuid","i1"],"name":"veth1","type":""},{"_uuid":["uuid","i2"],"name":"eth1","type":""},` +
		`{"_uuid":["uuid","i3"],"name":"eth2","type":"system"},{"_uuid":["uuid","i4"],"name":"br1","type":"internal"}]}]}`
	socket, asked := answering(t, answer)
	bridges := check.Value(ovsAt(socket))(t)
	check.That(t, json.Valid([]byte(<-asked)), "the question is no JSON")
	var got []string
	for _, b := range bridges {
		for _, p := range b.Ports {
			for _, i := range p.Interfaces {
				got = append(got, fmt.Sprint(b.Name, " ", len(b.Controller), b.Datapath, b.FailMode, " ", p.Name, p.Mode, p.Tag, p.Trunks, i.Name, " ", i.Type))
			}
		}
	}
	check.List(t, got, []string{
		"br0 0[secure] veth1[] [100] []veth1 ", "br0 0[secure] bond[trunk] [] [7 8]eth1 ", "br0 0[secure] bond[trunk] [] [7 8]eth2 system", "br1 1netdev[] br1[] [] [9]br1 internal",
	}, "the ports are")
}

func TestADatabaseOfOpenVSwitchThatIsNotAvailableIsNamed(t *testing.T) {
	refuses, _ := answering(t, `{"id":0,"result":[{},{"error":"unknown table"}],"error":null}`)
	closes, _ := answering(t, ``)
	for name, socket := range map[string]string{"no socket": filepath.Join(t.TempDir(), "none"), "a refusal": refuses, "an end": closes} {
		_, err := ovsAt(socket)
		check.That(t, errors.Is(err, ErrNoOVS), "%s: %v", name, err)
	}
}

// answering is a server of one answer.
func answering(t *testing.T, answer string) (socket string, asked <-chan string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "db.sock")
	listener := check.Value(net.Listen("unix", socket))(t)
	t.Cleanup(func() { listener.Close() })
	requests := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var question json.RawMessage
		_ = json.NewDecoder(conn).Decode(&question)
		requests <- string(question)
		fmt.Fprint(conn, answer)
	}()
	return socket, requests
}
