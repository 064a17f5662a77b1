package ebpf

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestCompiledObjectIsCurrent compiles the C sources again, also those for sockets, and
// compares the results with the committed objects.
func TestCompiledObjectIsCurrent(t *testing.T) {
	for _, p := range []string{"clang-14", "llvm-strip-14"} {
		if _, err := exec.LookPath(p); err != nil {
			if os.Getenv("CONTIV_TEST_REQUIRE") == "1" || os.Getenv("CI") == "true" {
				t.Fatalf("this test needs %s", p)
			}
			t.Skipf("this test needs %s", p)
		}
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, is := range [][2]string{{"ebpf", "datapath"}, {"hostservices", "sockets"}, {"hostservices", "clients"}} {
		pkg, object := is[0], is[1]
		dir, sources := t.TempDir(), filepath.Join(filepath.Dir(wd), pkg)
		cmd := exec.CommandContext(t.Context(), "go", "run", "github.com/cilium/ebpf/cmd/bpf2go", "-cc", "clang-14", "-strip", "llvm-strip-14", "-no-global-types",
			"-target", "bpfel", "-go-package", pkg, "-output-dir", dir, object, filepath.Join(sources, "bpf", object+".c"),
			"--", "-O2", "-g", "-Wall", "-Werror", "-mcpu=v3", "-I/usr/include/x86_64-linux-gnu")
		cmd.Dir = sources // paths are in what is compiled
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("compile: %v\n%s", err, out)
		}
		for _, name := range []string{object + "_bpfel.go", object + "_bpfel.o"} {
			got, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join(sources, name))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, got) {
				t.Errorf("%s of %s is not what the sources compile to; run go generate", name, pkg)
			}
		}
	}
}

// TestLayoutsHaveTheSizesOfC checks that the Go types have the sizes of the C types.
func TestLayoutsHaveTheSizesOfC(t *testing.T) {
	spec, err := loadDatapath()
	if err != nil {
		t.Fatal(err)
	}
	layouts := map[string][2]any{
		"turns": {uint32(0), uint32(0)}, "conns": {connKey{}, conn{}}, "halfopen": {connKey{}, conn{}}, "slots": {uint32(0), slot{}},
		"spent": {uint32(0), ownerShare{}}, "given": {uint32(0), ownerShare{}}, "swept": {uint32(0), uint64(0)}, "hits": {uint64(0), counter{}},
		"frags": {fragKey{}, frag{}}, "tallies": {uint32(0), ruleTally{}}, "port_counters": {uint32(0), portCounter{}},
		"event_slots": {uint32(0), eventSlot{}}, "event_budgets": {uint32(0), eventBudget{}}, "translations": {connKey{}, translation{}},
		"affines": {affineKey{}, affine{}}, "affine_counts": {uint64(0), uint32(0)}, "rules": {ruleKey{}, rule{}},
	}
	for _, part := range (&datapath{services: &serviceState{}}).tableParts() {
		of := reflect.TypeOf(part).Elem()
		for i, tag := range tagsOf(part) {
			if have, ok := of.Field(i).Type.FieldByName("have"); ok {
				layouts[tag.name] = [2]any{reflect.Zero(have.Type.Key()).Interface(), reflect.Zero(have.Type.Elem()).Interface()}
			}
		}
	}
	for name, kv := range layouts {
		m := spec.Maps[name]
		if k, v := binary.Size(kv[0]), binary.Size(kv[1]); k != int(m.KeySize) || v != int(m.ValueSize) {
			t.Errorf("map %s: key %d and value %d bytes in Go, %d and %d in C", name, k, v, m.KeySize, m.ValueSize)
		}
	}
}

// TestMalformedNeverPass runs truncated and damaged packets through the program
// on a port: every proper prefix of every kind of packet is dropped and
// counted, and damage anywhere never lets a packet out that its sender or its
// policy may not send.
func TestMalformedNeverPass(t *testing.T) {
	r := newRig(t)
	drv := r.open(t)
	defer drv.Close()
	_, big := conformance.DesiredStates(t)
	for name, p := range big.Ports.All() {
		r.addWire(t, name, p.MAC)
	}
	if _, err := drv.Apply(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	var from, to *desired.Port
	for _, p := range big.Ports.All() {
		for _, q := range big.Ports.All() {
			if p != q && p.Network == q.Network && p.Policies == 0 && q.Policies == 0 {
				from, to = p, q
			}
		}
	}
	if from == nil {
		t.Fatal("the desired state has no two free ports on one network")
	}
	const redirect = 7
	try := func(f []byte) uint32 {
		t.Helper()
		var ret uint32
		r.thread.do(func() {
			var err error
			ctx := make([]byte, 192) // struct __sk_buff
			binary.NativeEndian.PutUint32(ctx[40:], uint32(r.drv.dp.ports.indexes[from.IfName]))
			ret, err = testRun(r.drv.dp.obj.FromContainer, f, ctx)
			if err != nil {
				t.Errorf("run: %v", err)
			}
		})
		return ret
	}
	packets := map[string]reference.Packet{}
	for _, v6 := range []bool{false, true} {
		for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP, model.ProtoICMP, model.ProtoSCTP} {
			p := reference.Packet{SrcMAC: from.MAC, DstMAC: to.MAC, Src: from.IPv4, Dst: to.IPv4, Proto: proto, SrcPort: 4000, DstPort: 80, TCPFlags: reference.FlagSYN, ICMPID: 7}
			if proto == model.ProtoICMP {
				p.ICMPType = 8
			}
			if v6 {
				p.Src, p.Dst = from.IPv6, to.IPv6
				if proto == model.ProtoICMP {
					p.Proto, p.ICMPType = model.ProtoICMPv6, 128
				}
			}
			packets[p.Src.String()+proto.String()] = p
		}
	}
	packets["arp"] = reference.Packet{SrcMAC: from.MAC, DstMAC: reference.Broadcast, ARP: &reference.ARP{Op: 1, SenderMAC: from.MAC, SenderIP: from.IPv4, TargetIP: to.IPv4}}
	drops := func() (n uint64) {
		s, err := drv.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range s.Drops {
			n += d
		}
		return n
	}
	runs := 0
	for name, p := range packets {
		f := conformance.Frame(p)
		if got := try(f); got != redirect {
			t.Fatalf("%s: whole packet: verdict %d, want %d (redirected)", name, got, redirect)
		}
		before := drops()
		var cut uint64
		// The kernel's test run itself refuses what ends within the IP header.
		for n := 14 + 20 + 20*len(p.Src.AsSlice())/16; n < len(f); n++ {
			cut++
			if got := try(f[:n]); got == redirect || int32(got) == -1 {
				t.Errorf("%s cut to %d of %d bytes: verdict %d", name, n, len(f), int32(got))
			}
		}
		if got := drops() - before; got != cut {
			t.Errorf("%s: %d truncated packets, %d drops counted", name, cut, got)
		}
		if p.ARP == nil && cut == 0 {
			t.Errorf("%s: nothing was cut", name)
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			g := bytes.Clone(f)
			for range 1 + rnd.IntN(4) {
				g[rnd.IntN(len(g))] = byte(rnd.Uint32())
			}
			got := try(g)
			runs++
			if int32(got) == -1 {
				t.Errorf("%s damaged to %x: left to the host's stack", name, g)
			}
			if got == redirect && !bytes.Equal(g[6:12], from.MAC[:]) {
				t.Errorf("%s damaged to %x: passed with a forged source", name, g)
			}
		}
	}
	t.Logf("%d damaged packets", runs)
}
