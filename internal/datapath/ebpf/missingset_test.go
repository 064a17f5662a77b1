package ebpf

import "testing"

// TestMissingPolicySetDenies: a port whose policy set is not in the map gets nothing, also
// what its policies would allow.
func TestMissingPolicySetDenies(t *testing.T) {
	r, _, pic := driftRig(t, attachClsact)
	a, _ := pic.Ports.Get("cvna")
	b, _ := pic.Ports.Get("cvnb")
	p := web(a, b, 4000, 80)
	p.Port = a.IfName
	if got := r.inject(t, p); len(got.Ports) != 1 {
		t.Fatalf("with its set: %v", got)
	}
	if err := r.drv.dp.obj.Sets.Delete(uint32(b.Policies)); err != nil {
		t.Fatal(err)
	}
	for _, port := range []uint16{80, 22} { // the first one is allowed by the set
		p := web(a, b, 4001, port)
		p.Port = a.IfName
		if got := r.inject(t, p); got.Passed() {
			t.Errorf("port %d without its set: %v", port, got)
		}
	}
}
