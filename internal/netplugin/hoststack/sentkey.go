package hoststack

import (
	"encoding/binary"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The library can load the address that a connection was sent to (nft's "ct original ip
// daddr") in the older way alone (expr.CtKeyDST), which nft aborts at where it is a part of
// a key. So rules that have it are written here.

// writeRules appends rules to chains, in one transaction.
func (t *frontendTable) writeRules(chains []chain) error {
	message := func(kind uint16, data []byte) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request}, Data: data}
	}
	batch := []byte{0, nftVersion, 0, unix.NFNL_SUBSYS_NFTABLES}
	all := []netlink.Message{message(unix.NFNL_MSG_BATCH_BEGIN, batch)}
	for _, ch := range chains {
		for _, r := range ch.rules {
			data, err := t.marshalRule(ch.name, r)
			if err != nil {
				return err
			}
			m := message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE, slices.Concat([]byte{byte(t.table.Family), nftVersion, 0, 0}, data))
			m.Header.Flags |= netlink.Create | netlink.Append
			all = append(all, m)
		}
	}
	if len(all) == 1 {
		return nil
	}
	all[len(all)-1].Header.Flags |= netlink.Acknowledge // errors of others come before
	all = append(all, message(unix.NFNL_MSG_BATCH_END, batch))
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := growBuffers(c); err != nil {
		return err
	}
	if _, err := c.SendMessages(all); err != nil {
		return err
	}
	_, err = c.Receive()
	return err
}

const nftVersion = 0 // of nfgenmsg

func (t *frontendTable) marshalRule(chain string, exprs []expr.Any) ([]byte, error) {
	var list []netlink.Attribute
	for _, e := range exprs {
		data, err := t.marshalExpr(e)
		if err != nil {
			return nil, err
		}
		list = append(list, netlink.Attribute{Type: unix.NLA_F_NESTED | unix.NFTA_LIST_ELEM, Data: data})
	}
	all, err := netlink.MarshalAttributes(list)
	if err != nil {
		return nil, err
	}
	return netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_RULE_TABLE, Data: []byte(t.table.Name + "\x00")},
		{Type: unix.NFTA_RULE_CHAIN, Data: []byte(chain + "\x00")},
		{Type: unix.NLA_F_NESTED | unix.NFTA_RULE_EXPRESSIONS, Data: all},
	})
}

func (t *frontendTable) marshalExpr(e expr.Any) ([]byte, error) {
	x, ok := e.(*expr.Ct)
	if !ok || x.Key != expr.CtKeyDST {
		return expr.Marshal(byte(t.table.Family), e)
	}
	key := uint32(unix.NFT_CT_DST_IP)
	if t.v6() {
		key = unix.NFT_CT_DST_IP6
	}
	data, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_CT_KEY, Data: binary.BigEndian.AppendUint32(nil, key)},
		{Type: unix.NFTA_CT_DREG, Data: binary.BigEndian.AppendUint32(nil, x.Register)},
		{Type: unix.NFTA_CT_DIRECTION, Data: []byte{0}}, // as it was sent
	})
	if err != nil {
		return nil, err
	}
	return netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_EXPR_NAME, Data: []byte("ct\x00")},
		{Type: unix.NLA_F_NESTED | unix.NFTA_EXPR_DATA, Data: data},
	})
}

// hasSentKey reports whether rules are for writeRules.
func hasSentKey(ch chain) bool {
	return slices.ContainsFunc(ch.rules, func(r []expr.Any) bool {
		return slices.ContainsFunc(r, func(e expr.Any) bool { x, ok := e.(*expr.Ct); return ok && x.Key == expr.CtKeyDST })
	})
}

func (t *frontendTable) conn() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(growBuffers))
}
