package compat

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/reference/differences-from-1x.md")

// differences tells, by number of the exchange, where this server answers
// otherwise than 1.x did, and why.
var differences = byNumber(append(slices.Clone(table), filled))

var table = []difference{
	{"1.x knew paths with a trailing slash only, no HEAD and no /healthz (known fault 29)", []int{28, 71, 72, 86}},
	{"endpoints can be listed", []int{23}},
	{"what follows the JSON object is refused", []int{81}},
	{"unknown fields are refused, because a misspelt one would have no effect", []int{79}},
	{"a body with another key than the path is refused; 1.x used the path's", []int{84}},
	{"a write to a path with dots in place of a name is refused, since a client that follows the redirection would reach another object", []int{156, 157}},
	{"VLAN 4095 is reserved (IEEE 802.1Q)", []int{112, 122}},
	{"an empty field of global leaves the setting as it is", []int{115, 126}},
	{"putting an object as it is changes nothing and succeeds", []int{159, 239, 420}},
	{"a default network must exist (known fault 27)", []int{161}},
	{"IPv6-only networks exist (known fault 20)", []int{224}},
	{"a subnet of one address is one, and another must not overlap it (known fault 22)", []int{250, 251}},
	{"a subnet has no address bits beyond its length: 1.x kept them in the object and dropped them in its state (known fault 22)", []int{257}},
	{"networks cannot have loopback or multicast addresses (known fault 22)", []int{264, 265}},
	{"a gateway is inside its subnet and not its network or broadcast address (known faults 20 and 22)", []int{270, 271, 274}},
	{"1.x echoed the request, with empty links and with what it ignored (known fault 14)", []int{358, 363, 434, 435, 445, 446, 447, 448, 456, 457, 480, 491, 494, 508, 514, 520, 521}},
	{"a rule names one kind of peer at most", []int{379, 385}},
	{"protocols are 0 to 255, ports 0 to 65535, and only tcp, udp and sctp have any (known fault 25)", []int{394, 397, 398, 399}},
	{"an address that 1.x did not understand, and silently ignored, is refused (known fault 25)", []int{409}},
	{"rules take IPv6 addresses (known fault 25)", []int{411}},
	{"a group that a rule names cannot be deleted (known fault 13)", []int{430}},
	{"an address in use is not allocated again (known fault 16)", []int{560, 612, 655}},
	{"gateway, network and broadcast addresses are not allocated, and addresses lie inside the subnet (known faults 17 and 20)", []int{613, 615, 616, 630, 636, 646}},
	{"an address that is not allocated cannot be released (known fault 17)", []int{635, 643}},
	{"an endpoint has an id (known fault 23)", []int{653}},
	{"addresses lie inside the group's pool and the network's range (known fault 19)", []int{659, 749}},
	{"a group's endpoints are on its network (known fault 23)", []int{664}},
	{"1.x matched parts of ids, names and containers (known fault 30); what is ambiguous is refused", []int{667}},
	{"events are start and die; an unknown container is not found", []int{683, 689}},
	{"networks of a tenant do not overlap, ranges included", []int{695}},
	{"the forwarding mode changes with networks and containers there (docs/how-to/routing.md says what is lost)", []int{703}},
	{"the infrastructure does not change under networks (known fault 27)", []int{705}},
	{"what a runtime does not repeat is kept, and an ended container has no labels", []int{708, 710}},
	{"a clean-up reports what it has done; 1.x did not (known fault 31)", []int{726, 727, 728, 729, 730}},
	{"the settings stay while networks use them, and deleting them means the defaults (known fault 8)", []int{805, 809, 810}},
	{"endpoint ids hold no slash (known fault 5)", []int{818, 821}},

	{"no services are an empty list, and an unknown one is not found (known fault 29)", []int{20, 21, 557}},
	{"/debug/ofnet tells of the hosts' desired and actual state, in text; there is no ofnet", []int{22}},
	{"bandwidths beyond 10,000 Gbit/s, and a DSCP or burst below zero, are refused (known fault 26)", []int{469, 471, 475}},
	{"names of net profiles are names (known fault 26)", []int{476, 477, 479}},
	{"a refused change leaves everything as it was; 1.x had taken links away (known fault 9)", []int{513}},
	{"BGP settings are for hosts that exist (known fault 26)", []int{539, 544}},
	{"AS numbers are 1 to 4294967295 (known fault 26)", []int{541, 542}},
	{"all ports of a service are checked, not only the first one's form (known fault 26)", []int{574, 575}},
	{"what was refused is not there; 1.x kept a ghost in memory (known fault 4)", []int{431, 568, 586}},
	{"a service that could not move to another network is still whole (known fault 24)", []int{785}},
	{"backends show the address and network of their endpoints; 1.x repeated the runtime's report, and forgot services (known fault 24)", []int{685}},
	{"the inspection of a service says why it has no backends", []int{554, 559}},

	{"an object that only one version accepted above is found by that one only", []int{99, 101, 103, 171, 288, 290, 292, 297, 298, 299, 300, 310, 315, 316, 317, 318, 548, 549, 550, 551, 696, 697, 787, 790, 791, 806, 808}},

	// Not differences by themselves.
	{"counts and lists hold what was accepted above, and not what was refused", []int{671, 673, 674, 675, 694, 713, 714, 715, 720, 722, 784, 824, 826, 828, 812}},
}

// filled are exchanges whose answers tell the container and the interface of an
// endpoint, which 1.x learnt later or never; but for these they are equal.
var filled = difference{"an endpoint shows container and interface from the start; 1.x left them empty at first. Answers to createEndpoint have new fields for the tenant's last change", []int{
	647, 648, 649, 654, 658, 660, 661, 662, 663, 665, 666, 670, 677, 684, 686, 688, 712, 716, 717, 719, 723, 724, 733, 734, 735, 736, 737, 740, 741, 742, 743, 745, 746, 747, 752, 753, 755, 756, 800, 816, 823,
}}

var filledFields = []string{"containerId", "containerID", "intfName", "tenantWritten", "tenantDeleted"}

type difference struct {
	why string
	at  []int
}

func byNumber(ds []difference) map[int]string {
	out := make(map[int]string)
	for _, d := range ds {
		for _, n := range d.at {
			out[n] = d.why
		}
	}
	return out
}

const document = "../../docs/reference/differences-from-1x.md"

// TestDifferencesPageIsComplete: the user's table of differences is the one that TestRecordedExchangesOf1xAreAnsweredAlike holds
// this server to. Run with -update to write it.
func TestDifferencesPageIsComplete(t *testing.T) {
	byN := map[int]exchange{}
	for _, x := range load(t) {
		byN[x.N] = x
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Generated by `go test ./test/compat -run TestDifferencesPageIsComplete -update`; do not edit. -->"+`
# Where the REST interface differs from Contiv 1.x

On this page you look up which requests this version answers otherwise than Contiv 1.x, and adapt your scripts.

A test replays %d recorded requests to a netmaster of 1.x, in order. The answers are the same except for those below. Of values that the server chooses (addresses, numbers, counts of them) only the form is compared. The order of lists and the wording of refusals are not compared. "Known fault" numbers are those of [this list](../design/known-faults.md).

## Refusals

Refusals have status 400, 404, 409 or 503, where 1.x always answered 500. netctl and the Go client of 1.x show the reason of status 500 only, and take 404 of a deletion for done. `+"`netmaster --legacy-errors`"+` answers clients that send no Accept header, as they do, with status 500 and the reason.

Unknown fields and query parameters are refused. netctl, the Go client, the user interface and contivk8s of 1.x send none of them.

## Calls of contivk8s

netplugin answers the two calls of 1.x's contivk8s (`+"`/ContivCNI.AddPod`, `/ContivCNI.DelPod`"+`) as 1.x did, failures with status 500. Labels of pods choose their network where netmaster follows Kubernetes.

## Services

Services have new fields: ipv6Address, affinity, and a name behind a port. A service without them behaves as in 1.x: a client is recognized by its address, and keeps its provider for 3 hours after its last connection.

## Intended differences

- A network with an address from allocAddress is not deleted (409) until the address is released, or expires after 24 hours. 1.x deleted the network, and the address stayed allocated.
- createEndpoint with an existing id and another host, group or address is refused (409). 1.x returned the existing endpoint.

## All differences

If an object is refused here that 1.x accepted, or the reverse, links to it and its place in lists differ too. These are not listed again.

| What is different, and why | Exchanges |
|---|---|
`, len(byN))
	for _, d := range append(slices.Clone(table), filled) {
		var paths []string
		for _, n := range d.at {
			x := byN[n]
			if x.N == 0 {
				t.Fatalf("exchange %d was not recorded", n)
			}
			p := "`%s %s`"
			if p = fmt.Sprintf(p, x.Method, x.Path); !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
		if more := len(paths) - 3; more > 0 {
			paths = append(paths[:3], fmt.Sprintf("and %d more", more))
		}
		fmt.Fprintf(&b, "| %s | %s |\n", d.why, strings.Join(paths, ", "))
	}
	if *update {
		if err := os.WriteFile(document, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(b.String(), string(have)); d != "" {
		t.Errorf("%s is out of date; run with -update:\n%s", document, d)
	}
}
