package main

import (
	"maps"
	"net/netip"
	"testing"
)

// TestServicesGetNoControlPlaneAddress: the addresses that flags name are known for whose they are, so that no
// service gets one; names and addresses of this host alone tell nothing.
func TestServicesGetNoControlPlaneAddress(t *testing.T) {
	o, err := parse(t, nil, "--external-address", "192.168.7.1:9999", "--agent-address", "192.168.7.2:9001", "--etcd-endpoints", "http://192.168.7.3:2379,http://[fd00::3]:2379,http://127.0.0.1:2379,http://store:2379")
	if err != nil {
		t.Fatal(err)
	}
	got, want := o.controlPlaneAddresses(), map[netip.Addr]string{
		netip.MustParseAddr("192.168.7.1"): "is the address of a netmaster", netip.MustParseAddr("192.168.7.2"): "is the address of a netmaster",
		netip.MustParseAddr("192.168.7.3"): "is the address of the store", netip.MustParseAddr("fd00::3"): "is the address of the store",
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
