package hostchanges

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
)

// File, in the state directory, has the changes.
const File = "host-changes.json"

// ApplyAgain ends what is said of a change that is rolled back.
const ApplyAgain = "to apply it again, stop netplugin, delete " + File + " from its state directory and start it"

const (
	// maxFile bounds the file.
	maxFile = 1 << 20
	// maxObjects bounds the objects in it: the oldest changes above that are left out.
	maxObjects = 10_000
)

// content is what is in the file.
type content struct {
	Version int                   `json:"version"` // 1
	Path    map[netip.Addr]string `json:"path"`    // to each netmaster when one answered last
	Next    uint64                `json:"-"`
	Changes []Change              `json:"changes,omitempty"` // by their numbers
}

// read reads the file; one that is not there is empty.
func read(path string) (content, error) {
	var c content
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	err = strictjson.Read(f, maxFile, &c)
	if err = errors.Join(err, f.Close()); err != nil {
		return content{}, err
	}
	if err := c.validate(); err != nil {
		return content{}, err
	}
	return c, nil
}

func (c content) validate() error {
	if c.Version != 1 {
		return fmt.Errorf("it is of version %d", c.Version)
	}
	trials, before := 0, uint64(0)
	for i, x := range c.Changes {
		if i > 0 && x.Number <= before {
			return fmt.Errorf("change %d follows change %d", x.Number, before)
		}
		before = x.Number
		switch x.State {
		case Reverting:
			trials++
		case Applied, Reapplied, RolledBack:
		default:
			return fmt.Errorf("change %d has state %q", x.Number, x.State)
		}
		if len(x.Objects) == 0 {
			return fmt.Errorf("change %d is of nothing", x.Number)
		}
		for _, o := range x.Objects {
			if err := x.Kind.validate(o); err != nil {
				return fmt.Errorf("change %d: %w", x.Number, err)
			}
		}
	}
	if trials > 1 {
		return fmt.Errorf("%d changes have state %q", trials, Reverting)
	}
	return nil
}

func (k Kind) validate(object string) (err error) {
	switch k {
	case Infra:
		var n model.NetworkKey
		if n, err = model.ParseNetworkKey(object); err == nil {
			_, err = model.ParseNetworkName(string(n.Name))
		}
	case Routes, Learned:
		_, err = netip.ParsePrefix(object)
	case Mode:
		_, err = model.ParseFwdMode(object)
	default:
		err = fmt.Errorf("it is of kind %q", k)
	}
	return err
}

// Save writes the file if something has changed. It does not wait for the disk: heartbeats
// are sent by the same goroutine.
func (h *History) Save() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.unsaved {
		return
	}
	c := h.content
	c.Version = 1
	objects, first := 0, len(c.Changes)
	for first > 0 {
		if objects += len(c.Changes[first-1].Objects); objects > maxObjects {
			break
		}
		first--
	}
	c.Changes = c.Changes[first:]
	data, err := json.Marshal(c)
	if err == nil {
		err = durable.Replace(h.path, append(data, '\n'))
	}
	if err != nil {
		h.log.Warn("changes of this host's own networking are not remembered across a restart of netplugin", "file", h.path, "error", err)
		return
	}
	h.unsaved = false
}
