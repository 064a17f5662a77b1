package ebpf

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// BenchmarkPrograms measures the program on a port alone, by the kernel's own
// clock: packets of known connections on the fast path and on the slow one, and
// the packets of a TCP connection from its request to its end. Compare with
// another version's in turn; other work on the machine moves the figures.
func BenchmarkPrograms(b *testing.B) {
	r := newRig(b)
	pic, a, c := r.neighbours(b)
	drv := r.open(b)
	defer drv.Close()
	if rep, err := drv.Apply(b.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		b.Fatal(err, conformance.Failed(rep))
	}
	back := func(p reference.Packet) reference.Packet {
		p.SrcMAC, p.DstMAC, p.Src, p.Dst, p.SrcPort, p.DstPort = p.DstMAC, p.SrcMAC, p.Dst, p.Src, p.DstPort, p.SrcPort
		return p
	}
	const syn, ack, fin = reference.FlagSYN, reference.FlagACK, reference.FlagFIN
	there := func(p reference.Packet, flags uint8, n int) float64 {
		p.TCPFlags = flags
		return r.clocked(b, a.IfName, conformance.Frame(p), n)
	}
	answer := func(p reference.Packet, flags uint8) float64 {
		p = back(p)
		p.TCPFlags = flags
		return r.clocked(b, c.IfName, conformance.Frame(p), 1)
	}
	v4, ping := web(a, c, 4000, 80), web(a, c, 0, 0)
	v6 := v4
	v6.Src, v6.Dst = a.IPv6, c.IPv6
	ping.Proto, ping.ICMPType, ping.ICMPID = model.ProtoICMP, 8, 7
	for _, p := range []reference.Packet{v4, v6} {
		there(p, syn, 1)
		answer(p, syn|ack)
		there(p, ack, 2)
	}
	there(ping, 0, 1)
	took := map[string][]float64{}
	i := 0
	for b.Loop() {
		note := func(name string, ns float64) { took[name] = append(took[name], ns) }
		note("ns/short-way", there(v4, ack, 2000))
		note("ns/long-way-IPv6", there(v6, ack, 1000))
		note("ns/long-way-echo", there(ping, 0, 1000))
		for range 50 {
			p := web(a, c, uint16(5000+i%50000), 8000+uint16(i/50000%80))
			i++
			handshake := there(p, syn, 1) + answer(p, syn|ack) + there(p, ack, 1)
			note("ns/handshake", handshake)
			note("ns/end", there(p, fin|ack, 1)+answer(p, fin|ack))
		}
	}
	for name, v := range took {
		slices.Sort(v)
		b.ReportMetric(v[len(v)/4], name) // the lower quartile: what is above waited for others
	}
}

// clocked runs the program on a port n times on a frame, which it must send on,
// and returns what the kernel says that it took each time, in ns.
func (r *rig) clocked(tb testing.TB, ifname string, frame []byte, n int) float64 {
	tb.Helper()
	ctx, out := make([]byte, 192), make([]byte, 2048) // struct __sk_buff, the frame
	a := struct {                                     // of BPF_PROG_TEST_RUN
		fd, verdict, in, out uint32
		frame, outFrame      uint64
		repeat, took         uint32
		ctxIn, ctxOut        uint32
		ctx, outCtx          uint64
	}{
		fd: uint32(r.drv.dp.obj.FromContainer.FD()), in: uint32(len(frame)), out: uint32(len(out)), repeat: uint32(n), ctxIn: uint32(len(ctx)),
		frame: uint64(uintptr(unsafe.Pointer(&frame[0]))), outFrame: uint64(uintptr(unsafe.Pointer(&out[0]))), ctx: uint64(uintptr(unsafe.Pointer(&ctx[0]))),
	}
	binary.NativeEndian.PutUint32(ctx[40:], uint32(r.drv.dp.ports.indexes[ifname]))
	deadline := time.Now().Add(10 * time.Second)
	for {
		const testRun = 10
		var errno unix.Errno
		r.thread.do(func() {
			_, _, errno = unix.Syscall(unix.SYS_BPF, testRun, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a))
		})
		runtime.KeepAlive(frame)
		runtime.KeepAlive(out)
		runtime.KeepAlive(ctx)
		switch {
		case errors.Is(errno, unix.EINTR) && time.Now().Before(deadline): // the runtime's own signals
			continue
		case errno != 0:
			tb.Fatal(errno)
		case a.verdict != redirected:
			tb.Fatalf("%x: verdict %d", frame, a.verdict)
		}
		return float64(a.took)
	}
}

// BenchmarkAudits measures the program's part of a TCP handshake while somebody
// monitors (without drops and connections): where no policy has asides, where
// rules log, and where a policy is audited.
func BenchmarkAudits(b *testing.B) {
	for _, x := range []struct {
		name string
		edit func(desired.Host) desired.Host
	}{
		{"none", func(pic desired.Host) desired.Host { return pic }},
		{"logged", func(pic desired.Host) desired.Host {
			pic = audited(pic)
			s, _ := pic.PolicySets.Get(2)
			next := *s
			next.Audits = nil
			pic.PolicySets = pic.PolicySets.Set(2, &next).Delete(3)
			return pic
		}},
		{"audited", audited},
	} {
		b.Run(x.name, func(b *testing.B) {
			r := newRig(b)
			pic, a, c := r.neighbours(b)
			drv := r.open(b)
			defer drv.Close()
			if rep, err := drv.Apply(b.Context(), x.edit(pic)); err != nil || conformance.Failed(rep) != nil {
				b.Fatal(err, conformance.Failed(rep))
			}
			events, err := drv.Monitor(b.Context(), driver.MonitorOptions{NoDrops: true})
			if err != nil {
				b.Fatal(err)
			}
			told := make(chan int)
			go func() {
				n := 0
				for e := range events {
					if e.Kind != driver.FlowLost {
						n++
					}
				}
				told <- n
			}()
			var took []float64
			for i := 0; b.Loop(); i++ {
				p := web(a, c, uint16(5000+i%50000), 8000+uint16(i%80))
				ns := r.clocked(b, a.IfName, conformance.Frame(p), 1)
				p.TCPFlags = reference.FlagSYN | reference.FlagACK
				answer := p
				answer.SrcMAC, answer.DstMAC, answer.Src, answer.Dst, answer.SrcPort, answer.DstPort = p.DstMAC, p.SrcMAC, p.Dst, p.Src, p.DstPort, p.SrcPort
				ns += r.clocked(b, c.IfName, conformance.Frame(answer), 1)
				p.TCPFlags = reference.FlagACK
				took = append(took, ns+r.clocked(b, a.IfName, conformance.Frame(p), 1))
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/4], "ns/handshake")
			if err := drv.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(<-told), "told")
		})
	}
}
