package relay

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/store"
)

// maxLine is the longest line of a stream, in bytes: a part of a list, or a transaction,
// which no store lets be that long.
const maxLine = 32 << 20

func toWire(kv store.KV) api.MirrorRow {
	r := api.MirrorRow{Key: kv.Key, Create: int64(kv.Create), Mod: int64(kv.Mod)}
	if !utf8.ValidString(kv.Key) {
		r.Key, r.KeyData = "", []byte(kv.Key)
	}
	if utf8.Valid(kv.Value) {
		r.Text = string(kv.Value)
	} else {
		r.Data = kv.Value
	}
	return r
}

func fromWire(r api.MirrorRow) store.KV {
	kv := store.KV{Key: r.Key, Create: store.Revision(r.Create), Mod: store.Revision(r.Mod)}
	if r.KeyData != nil {
		kv.Key = string(r.KeyData)
	}
	switch {
	case !kv.Exists():
	case r.Data != nil:
		kv.Value = r.Data
	default:
		kv.Value = []byte(r.Text)
	}
	return kv
}

func allFromWire(rows []api.MirrorRow) []store.KV {
	kvs := make([]store.KV, len(rows))
	for i, r := range rows {
		kvs[i] = fromWire(r)
	}
	return kvs
}

// line is a message as it is sent.
func line(m api.MirrorMessage) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(m) // it has nothing that cannot be encoded
	return b.Bytes()
}

// addressed puts the id of a mirror into a line that was made without.
func addressed(to []byte, id []byte, line []byte) []byte {
	to = append(to, `{"id":`...)
	to = append(to, id...)
	if len(line) > len("{}\n") {
		to = append(to, ',')
	}
	return append(to, line[1:]...)
}
