// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"io"
	"os"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/budget"
)

// auditing specifies which requests are recorded, and where. The zero value records no requests.
type auditing struct {
	sink     *auditSink // nil if no requests are recorded
	policy   audit.PolicyRuleEvaluator
	log      *logFile      // nil if there is no log, or if it is standard output
	rotation rotation      // rotation of log
	budgets  *budget.Bytes // one budget for each tenant
	// policyFile is the path of the policy. policyText is the fingerprint of its content.
	policyFile string
	policyText fingerprint
}

// openAuditing reads the policy file that config names, and opens the log. If config is nil, no
// requests are recorded.
func (g *Gateway) openAuditing(config *configv1alpha1.GatewayAudit) (*auditing, error) {
	if config == nil {
		return &auditing{}, nil
	}
	text := fingerprintOf(config.PolicyFile) // read first, so that a later change of the file is detected
	rules, err := policy.LoadPolicyFromFile(config.PolicyFile)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	for i, rule := range rules.Rules {
		if auditinternal.LevelMetadata.Less(rule.Level) {
			return nil, fmt.Errorf("audit: %s: rules[%d].level: %s is not supported: use None or Metadata, since only "+
				"clusters record bodies",
				config.PolicyFile, i, rule.Level)
		}
	}
	out := &auditing{
		policy:     policy.NewPolicyRuleEvaluator(rules),
		rotation:   newRotation(config),
		policyFile: config.PolicyFile,
		policyText: text,
	}
	lines, err := out.open(g.current.Load(), config)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	out.sink = &auditSink{
		lines:           newAuditLog(lines),
		ignoresErrors:   config.OnFailure == configv1alpha1.AuditFailureIgnore,
		unauthenticated: g.unauthenticatedEvents,
		omissions:       &g.omissions,
		metrics:         g.metrics,
	}
	out.budgets = auditBudgets(out.rotation)
	if before := g.current.Load(); before != nil && before.auditing.sink != nil &&
		before.auditing.rotation == out.rotation {
		out.budgets = before.auditing.budgets
	}
	return out, nil
}

// events returns the sink for events, or nil if no requests are recorded.
func (a *auditing) events() audit.Sink {
	if a.sink == nil {
		return nil
	}
	return a.sink
}

// open returns the writer for events. It opens the log, unless the current snapshot has already
// opened it.
func (a *auditing) open(before *snapshot, config *configv1alpha1.GatewayAudit) (io.Writer, error) {
	if config.LogPath == configv1alpha1.LogPathStdout {
		return &wholeLines{out: os.Stdout}, nil
	}
	if before != nil && before.auditing.log != nil && before.auditing.log.path == config.LogPath {
		a.log = before.auditing.log
		return a.log, nil
	}
	var err error
	a.log, err = openLogFile(config)
	return a.log, err
}

// replace closes the log of the previous version if this version has another log. It then applies
// the rotation of this version.
func (a *auditing) replace(before *auditing) {
	if before.log != nil && before.log != a.log {
		before.log.retire()
	}
	if a.log != nil {
		a.log.configure(a.rotation)
	}
}

// discard closes the log of a version that is not applied, unless the current snapshot uses the
// log.
func (a *auditing) discard(current *snapshot) {
	if a.log != nil && (current == nil || current.auditing.log != a.log) {
		a.log.retire()
	}
}
