package main

import (
	"net"
	"testing"
)

func TestWhichParentsExist(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if !parentExists(lo.Index) {
		t.Error("lo does not")
	}
	const beyond = 1<<31 - 1
	if parentExists(beyond) {
		t.Errorf("interface %d does", beyond)
	}
}
