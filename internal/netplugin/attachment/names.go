package attachment

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// endpointPrefix begins the ids of endpoints that an agent made; the host's name
// follows, so that an agent recognises its own and two hosts with a container
// "c1" each do not meet. Ids made by others never pass for ours.
const endpointPrefix = "cni:"

// EndpointID derives an endpoint's id from the attachment:
// cni:<host>:<container>:<ifname>. None of the parts can hold a colon (host by
// model, container and ifname by the CNI specification and check here); what is
// too long or has other characters is hashed.
func EndpointID(host model.HostName, k attach.Key) model.EndpointID {
	id := markOf(host) + k.Container + ":" + k.IfName
	if strings.Contains(k.Container+k.IfName, ":") || len(id) > 200 || !plain(id) {
		sum := sha256.Sum256([]byte(k.Container + "\x00" + k.IfName))
		id = markOf(host) + "h:" + hex.EncodeToString(sum[:16])
	}
	return model.EndpointID(id)
}

func markOf(host model.HostName) string {
	h := string(host)
	if len(h) > 80 {
		sum := sha256.Sum256([]byte(h))
		h = hex.EncodeToString(sum[:16])
	}
	return endpointPrefix + h + ":"
}

func plain(id string) bool {
	_, err := model.ParseEndpointID(id)
	return err == nil
}

// isOurs reports whether an agent of this host made the endpoint.
func isOurs(host model.HostName, id model.EndpointID) bool {
	return strings.HasPrefix(string(id), markOf(host)) || id == model.HostEndpoint(host)
}

// attachmentOf returns the attachment of an endpoint, unless its id was hashed.
func attachmentOf(host model.HostName, ep model.EndpointKey) (attach.Key, bool) {
	if ep.ID == model.HostEndpoint(host) {
		return infraKey(ep.Network), true
	}
	rest, ok := strings.CutPrefix(string(ep.ID), markOf(host))
	if !ok {
		return attach.Key{}, false
	}
	container, ifName, ok := strings.Cut(rest, ":")
	if !ok || len(ifName) > 15 {
		return attach.Key{}, false
	}
	return attach.Key{Container: container, IfName: ifName}, true
}

// IsOurs reports whether an agent of this host made a veth for a container, or one
// that its alias does not name.
func IsOurs(host model.HostName, v vethpair.Veth) bool {
	key, ok := endpointOf(v)
	return !ok || isOurs(host, key.ID)
}
