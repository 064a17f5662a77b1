package ebpf

import (
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// fullConns is as many connections as the table has room for on a machine of 24 GB.
const fullConns = 262_144

// fullTables has so many open connections of one client's to a service, each with its
// translation: nearly all that packets of one service could make.
func (r *rig) fullTables(tb testing.TB, client *desired.Port, s *desired.Service, n int) {
	tb.Helper()
	now, err := monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	network := uint32(client.Network)
	var id uint64
	var to addr
	for key, backend := range s.Backends.All() { // it has one
		id, to = desired.BackendID(key), toAddr(backend.IPv4)
	}
	var fronts, behinds []connKey
	var all []translation
	var conns []conn
	for i := range n {
		src := netip.AddrFrom4([4]byte{10, 7, byte(16 + i>>14), 9})
		front := connKey{Domain: network, Proto: uint8(model.ProtoTCP), Pad: clientSide, Lo: toAddr(src), Hi: toAddr(s.IPv4), LoPort: uint16(1024 + i&0x3fff), HiPort: 80}
		x := translation{ClientKey: front, Backend: to, NATPort: front.LoPort, BackendPort: 8080, ConnDomain: network, Seed: s.Seed(), ID: id}
		fronts, behinds, all = append(fronts, front), append(behinds, x.connectionKey(addr{}, addr{})), append(all, x)
		conns = append(conns, conn{Seen: now, State: connReplied | connOpen | connService, Owner: 1})
	}
	obj := r.drv.dp.obj
	for at := range slices.Chunk(seq(n), 4096) {
		lo, hi := at[0], at[len(at)-1]+1
		for what, err := range map[string]error{
			"conns": second(obj.Conns.BatchUpdate(behinds[lo:hi], conns[lo:hi], nil)), "translations": second(obj.Translations.BatchUpdate(fronts[lo:hi], all[lo:hi], nil)),
			"the same, back": second(obj.Translations.BatchUpdate(behinds[lo:hi], all[lo:hi], nil)),
		} {
			if err != nil {
				tb.Fatal(what, err)
			}
		}
	}
	if err := r.drv.countTables(now); err != nil { // which tells the programs how many there are
		tb.Fatal(err)
	}
	if held := r.drv.dp.conntrack.translations.entries.Load(); held != uint64(2*n) {
		tb.Fatalf("%d entries of %d translations", held, n)
	}
}

func seq(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// processor is what this process has used of processors: on a busy machine a clock
// tells more of the others.
func processor(tb testing.TB) time.Duration {
	tb.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func second(_ int, err error) error { return err }

// BenchmarkFullTables measures, while the tables are full, how long it takes to count
// what services served, how long others wait for the driver's lock meanwhile, and what
// an Apply takes of a processor, with the lock held, that removes a service: one of no
// connection, and one of all.
func BenchmarkFullTables(b *testing.B) {
	r := newRig(b)
	r.sizes = map[string]uint32{"conns": fullConns}
	drv := r.open(b)
	defer drv.Close()
	client, pic, _, _ := r.served(b)
	apply := func(p desired.Host) time.Duration {
		b.Helper()
		start := processor(b)
		if rep, err := drv.Apply(b.Context(), p); err != nil || conformance.Failed(rep) != nil {
			b.Fatal(err, conformance.Failed(rep))
		}
		return processor(b) - start
	}
	far, _ := pic.Services.Get(model.ServiceKey{Tenant: "t", Name: "far"})
	without := pic
	without.Services = without.Services.Delete(far.Key)
	idle := pic
	idle.Services = idle.Services.Delete(model.ServiceKey{Tenant: "t", Name: "itself"})
	took := map[string][]float64{}
	note := func(what string, d time.Duration) { took[what] = append(took[what], d.Seconds()*1e3) }
	// stats tells how long counting takes, and how long others wait for it at most.
	stats := func(what string) {
		b.Helper()
		start, done := time.Now(), make(chan error, 1)
		go func() {
			_, err := drv.Stats(b.Context())
			note("ms/stats-"+what, time.Since(start))
			done <- err
		}()
		longest := time.Duration(0)
		for {
			select {
			case err := <-done:
				if note("ms/wait-for-stats-"+what, longest); err != nil {
					b.Fatal(err)
				}
				return
			default:
			}
			asked := time.Now()
			r.drv.mu.Lock()
			longest = max(longest, time.Since(asked))
			r.drv.mu.Unlock()
			runtime.Gosched()
		}
	}
	apply(pic)
	for b.Loop() {
		stats("empty")
		note("cpu-ms/removed-empty", apply(idle))
		apply(pic)
		r.fullTables(b, client, far, fullConns*9/10)
		stats("full")
		note("cpu-ms/removed-of-none", apply(idle))
		apply(pic)
		note("cpu-ms/removed-of-all", apply(without))
		if err := r.drv.dp.conns.sweep(func(connKey, conn) bool { return true }); err != nil {
			b.Fatal(err)
		}
		apply(pic)
	}
	for what, ms := range took {
		slices.Sort(ms)
		b.ReportMetric(ms[len(ms)/2], what)
	}
}
