#!/usr/bin/env bash
# test-kube.sh [PART...]: the tests with a real Kubernetes, which is built from its
# modules first (tools/kube.sh): minutes the first time. CONTIV_KUBE names one that is
# built; DRIVER is the data plane of nodes (ebpf, ovs). Each part takes less than an hour:
#   own      the project's own tests, and the chart's
#   sample   some of them, which the commit chooses, or SAMPLE: what CI runs
#   netpol   Kubernetes' own of NetworkPolicy (test/kube/upstream)
#   clusternetworkpolicy  network-policy-api's of ClusterNetworkPolicy
#   services   Kubernetes' own of services and what serves them
#   zones      those of them that ask for more nodes: six, in three zones
#   dualstack  Kubernetes' own of both address families at once
#   network    all other ones of sig-network: DNS, EndpointSlices, HostPort, ...
#   reports  whether the committed reports of Kubernetes' own tests are of this code
# Without a part it runs all, and those of Kubernetes on both data planes unless DRIVER
# is said. A part of Kubernetes' own goes on where it stopped, if the code is the same.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -n ${CONTIV_KUBE:-} ]] || if [[ $* == sample ]]; then CONTIV_KUBE=$(tools/kube.sh -nodes); else CONTIV_KUBE=$(tools/kube.sh); fi
export CONTIV_KUBE
# Samples have none that measures times, or that failed for want of processors, as TestPodsStartUnderTheirPolicies did.
# Each has the two that hold netmaster's copy of the API server's objects to a real one.
samples=(
	'TestControlPlaneKeepsAndRefusesObjects|TestPoliciesBesideKubeProxy|TestMirrorOutlivesAnOutage|TestLaggingServiceMirrorCatchesUp|TestMirrorReportsUnauthorized'
	'TestManifestMakesBareNodesReady|TestAPIServerTakesTheManifests|TestNamespacesAndPoliciesReachTheStore|TestDemoAnswersAsIntended'
	'TestPoliciesApplyFromTheFirstPacket|TestServicesAndSlicesReachTheStore|TestPodsOfDeploymentsAreMadeAndBound|TestMirrorFollowsAnotherStore|TestTutorialsWorkAsWritten'
)
read -ra drivers <<<"${DRIVER:-ebpf ovs}"
[[ $# -gt 0 ]] || set -- own netpol clusternetworkpolicy services zones dualstack network reports
for part; do
	case $part in
	own)
		go -C packaging/kubernetes/render test -count=1 ./... # the chart, by Helm's own lint and template; go test sees no change of files beyond the module
		go test -timeout 50m -count=1 -p 1 -tags integration ./test/kube ./test/kube/cluster/... ./test/kube/demo
		;;
	sample)
		sample=${SAMPLE:-$((16#$(git rev-parse HEAD | cut -c1-7) % ${#samples[@]}))}
		echo "sample $sample of ${#samples[@]}: SAMPLE=$sample make test-kube PART=sample repeats it"
		DRIVER=ebpf CONTIV_TEST_REQUIRE=1 tools/gotest.sh -timeout 25m -count=1 -v -tags integration -p 1 -run "^(TestMirrorHasWhatWasWritten|TestPodsWaitForObjects|${samples[sample]})$" -- ./test/kube ./test/kube/demo
		;;
	netpol | clusternetworkpolicy | services | zones | dualstack | network)
		for d in "${drivers[@]}"; do
			DRIVER=$d go test -timeout 60m -count=1 -v -tags integration -run '^TestSuite$' ./test/kube/upstream -args -suite "$part"
		done
		;;
	reports) go test -count=1 -tags integration -run '^TestReports' ./test/kube/upstream ;;
	*)
		echo "test-kube.sh: there is no part $part: own, sample, netpol, clusternetworkpolicy, services, zones, dualstack, network, reports" >&2
		exit 2
		;;
	esac
done
