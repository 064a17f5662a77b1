package ebpf

import (
	"encoding/binary"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Frames built by hand, so that every field can be wrong, and a reading of
// frames that shares nothing with the programs.

func ether(dst, src model.MAC, proto uint16, payload ...[]byte) []byte {
	f := append(slices.Clone(dst[:]), src[:]...)
	return append(binary.BigEndian.AppendUint16(f, proto), slices.Concat(payload...)...)
}

// header4 is an IPv4 header with options; frag is the field of flags and offset.
func header4(src, dst [4]byte, proto byte, frag uint16, options []byte, payload ...[]byte) []byte {
	body := slices.Concat(payload...)
	h := make([]byte, 20, 20+len(options)+len(body))
	h[0] = byte(0x45 + len(options)/4)
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(options)+len(body)))
	h[4], h[5] = 0x12, 0x34
	binary.BigEndian.PutUint16(h[6:], frag)
	h[8], h[9] = 64, proto
	copy(h[12:], src[:])
	copy(h[16:], dst[:])
	return summed(append(append(h, options...), body...))
}

// summed puts the right checksum into an IPv4 header, as far as there is one.
func summed(b []byte) []byte {
	if hl := int(b[0]&15) * 4; hl >= 20 && hl <= len(b) {
		b[10], b[11] = 0, 0
		binary.BigEndian.PutUint16(b[10:], ^sum16(b[:hl]))
	}
	return b
}

// sum16 is the sum of RFC 1071, not complemented.
func sum16(b []byte) uint16 {
	s := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func header6(src, dst [16]byte, next byte, payload ...[]byte) []byte {
	body := slices.Concat(payload...)
	h := []byte{0x60, 0, 0, 0, 0, 0, next, 255}
	binary.BigEndian.PutUint16(h[4:], uint16(len(body)))
	return slices.Concat(h, src[:], dst[:], body)
}

func tcp(from, to uint16, flags byte) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	b[12], b[13] = 0x50, flags
	return b
}

func udp(from, to uint16) []byte {
	b := []byte{0, 0, 0, 0, 0, 8, 0, 0}
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	return b
}

func icmp(kind, code byte, rest ...byte) []byte {
	return append([]byte{kind, code, 0, 0, 0, 7, 0, 1}, rest...)
}

// option is an IPv6 extension header of eight bytes.
func option(next byte) []byte { return []byte{next, 0, 1, 4, 0, 0, 0, 0} }

func fragment6(next byte, offset uint16, more bool) []byte {
	b := []byte{next, 0, 0, 0, 1, 2, 3, 4}
	binary.BigEndian.PutUint16(b[2:], offset)
	if more {
		b[3] |= 1
	}
	return b
}

// sample is a frame that a sends, and whether it may get anywhere.
type sample struct {
	frame  []byte
	passes bool
}

// samples are frames of every kind that the programs read, well and badly formed.
func samples(a, b reference.Packet) map[string]sample {
	am, bm := a.SrcMAC, a.DstMAC
	a4, b4, a6, b6 := a.Src.As4(), a.Dst.As4(), b.Src.As16(), b.Dst.As16()
	ll := am.LinkLocal().As16()
	ip4 := func(proto byte, frag uint16, options []byte, payload ...[]byte) []byte {
		return ether(bm, am, 0x0800, header4(a4, b4, proto, frag, options, payload...))
	}
	ip6 := func(next byte, payload ...[]byte) []byte {
		return ether(bm, am, 0x86dd, header6(a6, b6, next, payload...))
	}
	arp := func(op byte, smac model.MAC, sip, tip [4]byte) []byte {
		return slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, op}, smac[:], sip[:], make([]byte, 6), tip[:])
	}
	solicit := func(src [16]byte, target [16]byte, mac model.MAC) []byte {
		return header6(src, b6, 58, []byte{135, 0, 0, 0, 0, 0, 0, 0}, target[:], []byte{1, 1}, mac[:])
	}
	patch := func(f []byte, at int, v ...byte) []byte {
		copy(f[at:], v)
		if at >= 14 && at < 34 && f[12] == 8 && f[13] == 0 {
			summed(f[14:])
		}
		return f
	}
	unsummed := func(f []byte) []byte { // the checksum is off by one
		f[25]++
		return f
	}
	long := func(b []byte, n int) []byte { return append(slices.Clone(b), make([]byte, n-len(b))...) }
	nops := func(n int) []byte { return slices.Repeat([]byte{1}, n) }
	var none [4]byte
	web4, web6 := tcp(4000, 80, 2), tcp(4000, 80, 2)
	quoted4 := header4(b4, a4, 6, 0, nil, tcp(80, 4000, 16))
	quoted6 := header6(b6, a6, 6, tcp(80, 4000, 16))
	return map[string]sample{
		"tcp4":                      {ip4(6, 0, nil, web4), true},
		"tcp4-denied":               {ip4(6, 0, nil, tcp(4000, 81, 2)), false},
		"tcp4-synack":               {ip4(6, 0, nil, tcp(80, 80, 18)), false},
		"tcp4-reset":                {ip4(6, 0, nil, tcp(4000, 80, 4)), false},
		"tcp4-short":                {ip4(6, 0, nil, web4[:19]), false},
		"tcp4-offset-4":             {patch(ip4(6, 0, nil, web4), 46, 0x40), false},
		"tcp4-offset-15":            {patch(ip4(6, 0, nil, web4), 46, 0xf0), false},
		"tcp4-offset-6":             {patch(ip4(6, 0, nil, web4, []byte{1, 1, 1, 1}), 46, 0x60), true},
		"tcp4-offset-6-cut":         {patch(ip4(6, 0, nil, web4), 46, 0x60), false},
		"tcp4-no-flags":             {ip4(6, 0, nil, tcp(4000, 80, 0)), false},
		"tcp4-syn-fin":              {ip4(6, 0, nil, tcp(4000, 80, 3)), false},
		"tcp4-syn-reset":            {ip4(6, 0, nil, tcp(4000, 80, 6)), false},
		"tcp4-christmas":            {ip4(6, 0, nil, tcp(4000, 80, 0x29)), false},
		"tcp4-only-fin":             {ip4(6, 0, nil, tcp(4000, 80, 1)), false},
		"tcp4-only-push":            {ip4(6, 0, nil, tcp(4000, 80, 8)), false},
		"tcp4-congestion-bits":      {ip4(6, 0, nil, tcp(4000, 80, 0xc2)), true},
		"udp4":                      {ip4(17, 0, nil, udp(4000, 5353)), true},
		"udp4-options":              {ip4(17, 0, nil, udp(4000, 5353), make([]byte, 4)), true}, // RFC 9868: beyond its length
		"udp4-length-0":             {patch(ip4(17, 0, nil, udp(4000, 5353)), 38, 0, 0), false},
		"udp4-length-9":             {patch(ip4(17, 0, nil, udp(4000, 5353)), 38, 0, 9), false},
		"udp4-length-9999":          {patch(ip4(17, 0, nil, udp(4000, 5353)), 38, 0x27, 0x0f), false},
		"checksum4":                 {unsummed(ip4(6, 0, nil, web4)), false},
		"checksum4-options":         {unsummed(ip4(6, 0, nops(8), web4)), false},
		"ttl4-0":                    {patch(ip4(6, 0, nil, web4), 22, 0), false},
		"ttl4-1":                    {patch(ip4(6, 0, nil, web4), 22, 1), true},
		"reserved4":                 {ip4(6, 0x8000, nil, web4), false},
		"whole4":                    {ip4(6, 0x4000, nil, web4), true},
		"udp4-denied":               {ip4(17, 0, nil, udp(4000, 80)), false},
		"udp4-length-7":             {patch(ip4(17, 0, nil, udp(4000, 80)), 38, 0, 7), false},
		"ping4":                     {ip4(1, 0, nil, icmp(8, 0)), true},
		"pong4-unasked":             {ip4(1, 0, nil, icmp(0, 0)), false},
		"icmp6-in-ip4":              {ip4(58, 0, nil, icmp(128, 0)), false},
		"gre4":                      {ip4(47, 0, nil, make([]byte, 8)), false},
		"options4":                  {ip4(6, 0, nops(12), web4), true},
		"options4-forty":            {ip4(6, 0, nops(40), web4), true},
		"options4-hide-port":        {patch(ip4(6, 0, append(nops(4), tcp(4000, 80, 2)[:4]...), tcp(4000, 81, 2)), 14, 0x47), false},
		"header4-short":             {patch(ip4(6, 0, nil, web4), 14, 0x44), false},
		"header4-beyond":            {patch(ip4(6, 0, nil, web4), 14, 0x4f), false},
		"version4-5":                {patch(ip4(6, 0, nil, web4), 14, 0x55), false},
		"total4-beyond":             {patch(ip4(6, 0, nil, web4), 16, 0xff, 0xff), false},
		"total4-zero":               {patch(ip4(6, 0, nil, web4), 16, 0, 0), false},
		"total4-in-header":          {patch(ip4(6, 0, nil, web4), 16, 0, 19), false},
		"total4-cuts-ports":         {patch(ip4(6, 0, nil, web4), 16, 0, 22), false},
		"spoofed4":                  {ether(bm, am, 0x0800, header4(b4, b4, 6, 0, nil, web4)), false},
		"spoofed-mac":               {ether(bm, bm, 0x0800, header4(a4, b4, 6, 0, nil, web4)), false},
		"multicast-source":          {ether(bm, model.MAC{1, 0, 0, 0, 0, 1}, 0x0800, header4(a4, b4, 6, 0, nil, web4)), false},
		"fragment4-first":           {ip4(6, 0x2000, nil, long(web4, 24)), true},
		"fragment4-first-uneven":    {ip4(6, 0x2000, nil, web4), false},
		"fragment4-beyond":          {ip4(6, 0x1fff, nil, long(web4, 24)), false},
		"fragment4-later":           {ip4(6, 0x2003, nil, web4), false},
		"fragment4-last":            {ip4(6, 0x0003, nil, web4), false},
		"fragment4-overlaps-ports":  {ip4(6, 0x0001, nil, web4), false},
		"fragment4-tiny":            {ip4(6, 0x2000, nil, web4[:8]), false},
		"fragment4-udp-denied":      {ip4(17, 0x2000, nil, udp(4000, 80)), false},
		"error4-of-nothing":         {ip4(1, 0, nil, icmp(3, 3), quoted4), false},
		"error4-without-quote":      {ip4(1, 0, nil, icmp(3, 3)), false},
		"error4-quote-cut":          {ip4(1, 0, nil, icmp(3, 3), quoted4[:21]), false},
		"error4-quote-version":      {ip4(1, 0, nil, icmp(3, 3), patch(slices.Clone(quoted4), 0, 0x65)), false},
		"error4-quote-later":        {ip4(1, 0, nil, icmp(3, 3), patch(slices.Clone(quoted4), 6, 0, 9)), false},
		"error4-quotes-error":       {ip4(1, 0, nil, icmp(3, 3), header4(b4, a4, 1, 0, nil, icmp(3, 3))), false},
		"tcp6":                      {ip6(6, web6), true},
		"tcp6-offset-15":            {patch(ip6(6, web6), 66, 0xf0), false},
		"tcp6-no-flags":             {ip6(6, tcp(4000, 80, 0)), false},
		"udp6":                      {ip6(17, udp(4000, 5353)), true},
		"udp6-length-0":             {patch(ip6(17, udp(4000, 5353)), 58, 0, 0), false},
		"udp6-length-9999":          {patch(ip6(17, udp(4000, 5353)), 58, 0x27, 0x0f), false},
		"hops6-0":                   {patch(ip6(6, web6), 21, 0), false},
		"tcp6-denied":               {ip6(6, tcp(4000, 81, 2)), false},
		"ping6":                     {ip6(58, icmp(128, 0)), true},
		"icmp4-in-ip6":              {ip6(1, icmp(8, 0)), false},
		"link-local6":               {ether(bm, am, 0x86dd, header6(ll, b6, 6, web6)), true},
		"spoofed6":                  {ether(bm, am, 0x86dd, header6(b6, b6, 6, web6)), false},
		"version6-7":                {patch(ip6(6, web6), 14, 0x70), false},
		"length6-beyond":            {patch(ip6(6, web6), 18, 0xff, 0xff), false},
		"length6-zero":              {patch(ip6(6, web6), 18, 0, 0), false},
		"length6-cuts-ports":        {patch(ip6(6, web6), 18, 0, 2), false},
		"hop-by-hop6":               {ip6(0, option(6), web6), true},
		"chain6":                    {ip6(0, option(60), option(43), option(60), option(6), web6), true},
		"chain6-too-long":           {ip6(0, option(60), option(60), option(60), option(60), option(60), option(60), option(60), option(60), option(6), web6), false},
		"chain6-cut":                {ip6(0, option(60), option(6)), false},
		"option6-beyond":            {ip6(0, []byte{6, 255, 1, 4, 0, 0, 0, 0}, web6), false},
		"auth6":                     {ip6(51, []byte{6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, web6), true},
		"no-next6":                  {ip6(59), false},
		"fragment6-first":           {ip6(44, fragment6(6, 0, true), long(web6, 24)), true},
		"fragment6-first-uneven":    {ip6(44, fragment6(6, 0, true), web6), false},
		"fragment6-atomic":          {ip6(44, fragment6(6, 0, false), web6), true},
		"fragment6-later":           {ip6(44, fragment6(6, 8, true), web6), false},
		"fragment6-tiny":            {ip6(44, fragment6(60, 0, true), option(6)), false},
		"fragment6-twice":           {ip6(44, fragment6(44, 0, true), fragment6(6, 64, false), web6), false},
		"error6-of-nothing":         {ip6(58, icmp(1, 4), quoted6), false},
		"error6-quote-cut":          {ip6(58, icmp(2, 0), quoted6[:41]), false},
		"arp":                       {ether(reference.Broadcast, am, 0x0806, arp(1, am, a4, b4)), true},
		"arp-probe":                 {ether(reference.Broadcast, am, 0x0806, arp(1, am, none, b4)), true},
		"arp-cut":                   {ether(reference.Broadcast, am, 0x0806, arp(1, am, a4, b4)[:27]), false},
		"arp-spoofed-ip":            {ether(reference.Broadcast, am, 0x0806, arp(1, am, b4, a4)), false},
		"arp-spoofed-mac":           {ether(reference.Broadcast, am, 0x0806, arp(1, bm, a4, b4)), false},
		"arp-reply-from-nobody":     {ether(bm, am, 0x0806, arp(2, am, none, b4)), false},
		"arp-long-addresses":        {patch(ether(reference.Broadcast, am, 0x0806, arp(1, am, a4, b4)), 18, 8), false},
		"solicit":                   {ether(bm, am, 0x86dd, solicit(a6, b6, am)), true},
		"solicit-detects-duplicate": {ether(bm, am, 0x86dd, solicit([16]byte{}, b6, am)[:64]), false},
		"solicit-spoofed-option":    {ether(bm, am, 0x86dd, solicit(a6, b6, bm)), false},
		"solicit-option-zero":       {patch(ether(bm, am, 0x86dd, solicit(a6, b6, am)), 14+40+25, 0), false},
		"solicit-cut":               {ether(bm, am, 0x86dd, solicit(a6, b6, am)[:60]), false},
		"advertise-others":          {ip6(58, []byte{136, 0, 0, 0, 0, 0, 0, 0}, b6[:]), false},
		"router-advertisement":      {ip6(58, []byte{134, 0, 0, 0, 64, 0, 0, 0}, make([]byte, 8)), false},
		"redirect6":                 {ip6(58, []byte{137, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 32)), false},
		"tagged":                    {ether(bm, am, 0x8100, []byte{0, 7, 8, 0}, header4(a4, b4, 6, 0, nil, web4)), false},
		"tagged-twice":              {ether(bm, am, 0x88a8, []byte{0, 7, 0x81, 0, 0, 8, 8, 0}, header4(a4, b4, 6, 0, nil, web4)), false},
		"not-ip":                    {ether(bm, am, 0x88cc, make([]byte, 40)), false},
		"to-nobody":                 {ether(model.MAC{2, 9, 9, 9, 9, 9}, am, 0x0800, header4(a4, b4, 6, 0, nil, web4)), false},
		"to-itself":                 {ether(am, am, 0x0800, header4(a4, a4, 6, 0, nil, web4)), false},
	}
}
