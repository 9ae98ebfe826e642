package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"

	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// auditing is where requests are recorded, and which. The zero value records none.
type auditing struct {
	sink   audit.Sink
	policy audit.PolicyRuleEvaluator
	path   string
	// policyFile is that of the policy, and policyText what stood in it.
	policyFile string
	policyText fingerprint
}

// openAuditing reads a policy, nil for none, and opens its log, unless it is the one that is open.
func (g *Gateway) openAuditing(config *v1alpha1.GatewayAudit) (*auditing, error) {
	if config == nil {
		return &auditing{}, nil
	}
	text, err := fingerprintOf(config.PolicyFile) // before it is read: what is written meanwhile is seen later
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	rules, err := policy.LoadPolicyFromFile(config.PolicyFile)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	for i, rule := range rules.Rules {
		if auditinternal.LevelMetadata.Less(rule.Level) {
			return nil, fmt.Errorf("audit: %s: rule %d has the level %s: bodies are the clusters' to record", config.PolicyFile, i, rule.Level)
		}
	}
	out := &auditing{policy: policy.NewPolicyRuleEvaluator(rules), path: config.LogPath, policyFile: config.PolicyFile, policyText: text}
	if before := g.current.Load(); before != nil && before.auditing.path == out.path {
		out.sink = before.auditing.sink
		return out, nil
	}
	log := io.Writer(os.Stdout)
	if config.LogPath != "-" {
		// Requests that go on for long tell of their end there: who lets go of it last, closes it.
		if log, err = os.OpenFile(config.LogPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
	}
	out.sink = auditLog{log}
	return out, nil
}

// auditLog writes a line of JSON for each event, the bytes that upstream's backend of that name writes (k8s.io/apiserver/plugin/pkg/audit/log,
// v0.37.1): its codec finds out for each event anew how one is converted, and a request has two. Each line is one Write: safe for concurrent use
// where out is.
type auditLog struct{ out io.Writer }

// ProcessEvents implements [audit.Sink]. It returns when all is written, and false where something is not.
func (l auditLog) ProcessEvents(events ...*auditinternal.Event) bool {
	success := true
	for _, event := range events {
		if err := l.write(event); err != nil {
			audit.HandlePluginError(auditlog.PluginName, err, event)
			success = false
		}
	}
	return success
}

func (l auditLog) write(event *auditinternal.Event) error {
	versioned := &auditv1.Event{}
	if err := auditv1.Convert_audit_Event_To_v1_Event(event, versioned, nil); err != nil {
		return err
	}
	versioned.SetGroupVersionKind(auditv1.SchemeGroupVersion.WithKind("Event"))
	return json.NewEncoder(l.out).Encode(versioned)
}
