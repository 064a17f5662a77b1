package hoststack

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Clients that stay with their backend. Who is with whom is in maps with timeouts, by side,
// kind and shard: key . client : target. Before the choice such a map is looked in; behind
// the translation, where the packet itself says whom it goes to, the client is put there:
// nft up to 1.1 aborts when it lists rules that put into a map, or look up, what another
// map has given. So whether a target still is one cannot be looked up either:
// forgetClients takes clients of former ones away after a change.
//
// One shard is one map, so that a flood of clients of one service fills a part of what all
// have, and a change reads no more. Who finds no room is led by his address alone.

const (
	chainAffinity = "remember"
	suffixAffine  = "-known"    // of sides: the chain that leads clients to where they were
	suffixHash    = "-hash"     // that chooses by the client's address
	suffixKeep    = "-keep"     // whose rules, for each time, remember clients
	ofClients     = "-clients-" // begins the number of a shard in the name of a map
	ofTime        = "-for-"     // begins a time in the name of a set of keys
)

// shards is how many maps of clients there are of a side and kind: by the last bits of an
// address, or of a node's port.
const shards = 16

var affinityProtocols = []model.Protocol{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP}

// rulesOfTime is how many rules addTimes makes for each set of a time.
var rulesOfTime = shards * len(affinityProtocols)

func clientsOf(at string, shard int) string { return at + ofClients + strconv.Itoa(shard) }

func shardOf(at FrontendAddr) int {
	if at.Addr.IsUnspecified() {
		return int(at.Port) % shards
	}
	b := at.Addr.AsSlice()
	return int(b[len(b)-1]) % shards
}

var clientMaps = func() (all []string) {
	for _, at := range sidesAndKinds {
		for i := range shards {
			all = append(all, clientsOf(at, i))
		}
	}
	return all
}()

// timeOf is the set of keys at which clients stay for a time.
func timeOf(at string, d time.Duration) string { return at + ofTime + d.String() }

// timeIn is what timeOf was told.
func timeIn(set string) (at string, d time.Duration, ok bool) {
	at, said, ok := strings.Cut(set, ofTime)
	if !ok {
		return "", 0, false
	}
	d, err := time.ParseDuration(said)
	return at, d, err == nil && d > 0
}

// countTime counts an element if it is one of a set of a time.
func countTime(all map[string]int, in string, by int) {
	if strings.Contains(in, ofTime) {
		all[in] += by
	}
}

// addTimes adds to a transaction what becomes of sets of times that have so many more
// elements behind it. It returns the sets to be deleted last, and chains without rules
// whose rules are for writeRules.
func (t *frontendTable) addTimes(c *nftables.Conn, more map[string]int) (gone []string, chains []chain, err error) {
	changed := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		at, _, _ := timeIn(name)
		was, had := t.times[name]
		switch n := was + more[name]; {
		case n > 0 && !had:
			if err := c.AddSet(t.setOf(name), nil); err != nil {
				return nil, nil, err
			}
			t.times[name], changed[at] = n, true
		case n == 0 && had:
			delete(t.times, name)
			gone, changed[at] = append(gone, name), true
		case n > 0:
			t.times[name] = n
		}
	}
	for at := range changed {
		keep := chain{name: at + suffixKeep}
		c.FlushChain(&nftables.Chain{Name: keep.name, Table: t.table})
		for _, name := range slices.Sorted(maps.Keys(t.times)) {
			of, d, _ := timeIn(name)
			for shard := range shards {
				for _, p := range affinityProtocols {
					if of == at {
						keep.add(t.setAffinity(at, name, d, shard, p))
					}
				}
			}
		}
		chains = append(chains, keep)
	}
	return gone, chains, nil
}

// sentKey loads the key that a connection of a protocol had before its translation; nft
// lists the port only where the protocol is compared before.
func (t *frontendTable) sentKey(at string, p model.Protocol) (key []expr.Any, next uint32) {
	register := uint32(unix.NFT_REG32_00)
	key = l4(p)
	if !strings.HasSuffix(at, ofPorts) {
		key, register = append(key, &expr.Ct{Key: expr.CtKeyDST, Register: register}), t.behind(register)
	}
	return append(key, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}, &expr.Ct{Key: expr.CtKeyPROTODST, Register: register + 1}), register + 2
}

// setAffinity remembers a client and starts or restarts its affinity timeout.
func (t *frontendTable) setAffinity(at, time string, d time.Duration, shard int, p model.Protocol) []expr.Any {
	key, next := t.sentKey(at, p)
	which := &expr.Ct{Key: expr.CtKeyDST, Register: 1}
	if strings.HasSuffix(at, ofPorts) {
		which.Key = expr.CtKeyPROTODST
	}
	return slices.Concat(l4(p), []expr.Any{which}, t.isShard(at, shard), key, []expr.Any{lookup(time)}, key, []expr.Any{
		payloadTo(t.src(), next), payloadTo(t.dst(), reg32Target), dportTo(t.behind(reg32Target)),
		&expr.Dynset{SrcRegKey: 1, SrcRegData: reg32Target, SetName: clientsOf(at, shard), Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: d},
	})
}

// isShard compares the shard of an address, or port, in register 1.
func (t *frontendTable) isShard(at string, shard int) []expr.Any {
	n := t.src().bytes
	if strings.HasSuffix(at, ofPorts) {
		n = 2
	}
	mask, want := make([]byte, n), make([]byte, n)
	mask[n-1], want[n-1] = shards-1, byte(shard)
	return []expr.Any{
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: n, Mask: mask, Xor: make([]byte, n)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: want},
	}
}

// affinityChains are the chains for clients that stay that are always there.
func (t *frontendTable) affinityChains() (all []chain) {
	for _, at := range sidesAndKinds {
		kind, which := "", t.dst().load()
		if strings.HasSuffix(at, ofPorts) {
			kind, which = ofPorts, dportTo(1)
		}
		key, next := t.key(kind)
		known, hash := chain{name: at + suffixAffine}, chain{name: at + suffixHash}
		for i := range shards {
			known.add([]expr.Any{which}, t.isShard(at, i), key, []expr.Any{payloadTo(t.src(), next)}, t.lead(clientsOf(at, i)))
		}
		place := func(n, among, seed int) []expr.Any {
			return t.place(at, n, []expr.Any{
				payloadTo(t.src(), reg32Target),
				&expr.Hash{SourceRegister: reg32Target, DestRegister: next, Length: t.src().bytes, Modulus: uint32(among), Seed: uint32(seed), Type: expr.HashTypeJenkins}, //nolint:gosec // of sizes
			})
		}
		hash.add(t.place(at, 1, random(1, next)))
		for seed := 1; seed <= tries; seed++ {
			for _, n := range sizes[1:] {
				hash.add(place(n, n, seed))
			}
		}
		for _, n := range sizes[1:] {
			hash.add(place(n, n/4, 1))
		}
		all = append(all, known, hash, chain{name: at + suffixKeep})
	}
	remember := chain{name: chainAffinity}
	own := toChain(expr.VerdictGoto, sideOwn+"-"+chainAffinity)
	remember.add(iif(t.at), own) // kernels before 5.7 do not tell here: such clients are led by their address alone
	remember.add(srcLocal(), own)
	remember.add(toChain(expr.VerdictGoto, sideOutside+"-"+chainAffinity))
	all = append(all, remember)
	for _, side := range []string{sideOwn, sideOutside} {
		ch := chain{name: side + "-" + chainAffinity}
		for _, kind := range []string{"", ofPorts} {
			for _, p := range affinityProtocols {
				key, _ := t.sentKey(side+kind, p)
				var node []expr.Any
				if kind == ofPorts {
					node = []expr.Any{&expr.Ct{Key: expr.CtKeyDST, Register: 1}, lookup(setNodes)}
				}
				ch.add(node, key, []expr.Any{lookup(side + kind + suffixAffinity)}, toChain(expr.VerdictGoto, side+kind+suffixKeep))
			}
		}
		all = append(all, ch)
	}
	return all
}

// noteLostTargets notes which maps may have clients of targets that a front is losing; now nil = it
// goes.
func (t *frontendTable) noteLostTargets(at FrontendAddr, was, now *Frontend) {
	if was.Affinity == 0 {
		return
	}
	for _, side := range []string{sideOwn, sideOutside} {
		if now == nil || now.Affinity == 0 || slices.ContainsFunc(was.of(side).Targets, func(x Target) bool { return !now.of(side).has(x.AddrPort) }) {
			t.staleMaps[clientsOf(side+kindOf(at), shardOf(at))] = true
		}
	}
}

// of is the choice of a side.
func (f *Frontend) of(side string) Choice {
	if side == sideOwn {
		return f.Own
	}
	return f.Outside
}

func (c Choice) has(a netip.AddrPort) bool {
	_, has := slices.BinarySearchFunc(c.Targets, a, func(x Target, a netip.AddrPort) int { return x.Compare(a) })
	return has
}

// forgetClients forgets clients that are with somebody who is no target any more.
func (s *Frontends) forgetClients(t *frontendTable) error {
	for name := range t.staleMaps {
		if t.made {
			if err := s.forgetClientsOf(t, name); err != nil {
				return err
			}
		}
		delete(t.staleMaps, name)
	}
	return nil
}

func (s *Frontends) forgetClientsOf(t *frontendTable, name string) error {
	side, _, _ := strings.Cut(name, "-")
	stays := func(e nftables.SetElement) bool {
		at, ok := t.placeOf(name, string(e.Key))
		f := s.frontends[at]
		if !ok || f == nil || f.Affinity == 0 {
			return false
		}
		return slices.ContainsFunc(f.of(side).Targets, func(x Target) bool { return targetKey(x) == string(e.Val) })
	}
	for {
		c, err := t.conn()
		if err != nil {
			return err
		}
		all, err := c.GetSetElements(t.setOf(name))
		if err != nil {
			return fmt.Errorf("read map %s of nftables: %w", name, err)
		}
		var gone []nftables.SetElement
		for _, e := range all {
			if !stays(e) {
				gone = append(gone, nftables.SetElement{Key: e.Key, Val: e.Val})
			}
		}
		for part := range slices.Chunk(gone, inMessage) {
			if err := c.SetDeleteElements(t.setOf(name), part); err != nil {
				return err
			}
		}
		if err := c.Flush(); !isMissing(err) { // then the time of one of them was over just now
			return err
		}
	}
}
