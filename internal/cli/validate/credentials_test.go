// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubetenant/kubetenant/internal/cli/validate"
)

// Texts of findings that several tests expect.
const (
	few    = " of them | write secret,user,uid, then groups in quotes, then ,,TENANT"
	noName = " invalid tenant: not a valid label value | a tenant is a label value: at most 63 letters, digits, -, " +
		"_ and ., " +
		"and neither all nor tenant"
	space   = " the user name begins or ends with white space | remove the leading and trailing white space"
	omitted = " no tenant: name the tenant in the record, or set defaultTenant in the configuration" +
		" | end the record with ,,TENANT, or with ,,system for a caller of the system tenant"
	unread = " warning: the server does not read this field: it is neither a group nor the tenant | write several " +
		`groups as one field in quotes, such as "dev,ops", and the tenant after two commas`
	typographic = " warning: the field contains a typographic quotation mark, which does not quote anything | " +
		`use the quotation mark of ASCII: "`
	apostrophe = " warning: the field begins or ends with an apostrophe, which does not quote anything | " +
		`use the quotation mark of ASCII: "`
)

// TestTokens checks that each problem of a record is reported at its field with a fix, and that
// later records are checked too.
func TestTokens(t *testing.T) {
	checkFindings(t, validate.Tokens, map[string]finding{
		"good": {"S1,alice,1,\"dev,ops\",,acme\nS2,bob,2,,system\n", nil},
		"too few fields": {
			"S1,alice\n", []string{"1:1: a record must have at least secret, user and uid, but has only 2" + few},
		},
		"empty tenant": {
			"S1,alice,1,dev,,\n",
			[]string{
				"1:17: the record ends with two empty fields: the tenant is missing | put the tenant after the last comma",
			},
		},
		"invalid tenant": {"S1,alice,1,,a b\n", []string{"1:13:" + noName}},
		"no user":        {"S1,,1,,acme\n", []string{"1:4: must not be empty | write the user name and the uid"}},
		"empty field before the tenant": {
			"S1,alice,1,x,,y,,acme\n",
			[]string{
				"1:14: must not be empty, except directly before a tenant in the last field | remove the empty field, " +
					"or end the record with ,,TENANT",
			},
		},
		"reserved user": {
			"S1,system:admin,1,,acme\nS2,system:admin,1,,system\n",
			[]string{
				`1:1: the user name "system:admin" is the system tenant's | choose another name, or end the record with ,,system`,
			},
		},
		"reserved group": {
			"S1,alice,1,\"dev,kubeadm:cluster-admins\",,acme\n",
			[]string{
				`1:1: the group "kubeadm:cluster-admins" is the system tenant's | choose another name, ` +
					`or end the record with ,,system`,
			},
		},
		"white space": {"S1,alice ,1,,acme\n", []string{"1:4:" + space}},
		"unclosed quote in the last record": {
			"S1,alice,1,,acme\n\"S2,bob,2,,acme\n",
			[]string{`2:17: extraneous or missing " in quoted-field | put the field in quotes and write quotes in it twice`},
		},
		"unclosed quote before other records": {
			"S1,alice,1,,acme\n\"S2,bob,2,,acme\nS3,carol,3,,acme\n",
			[]string{`2:1: extraneous or missing " in quoted-field | put the field in quotes and write quotes in it twice`},
		},
		"text after a closing quote": {
			"\"S1\nx\"y,alice,1,,acme\nS2,bob\n",
			[]string{
				`1:1: extraneous or missing " in quoted-field | put the field in quotes and write quotes in it twice`,
				"3:1: a record must have at least secret, user and uid, but has only 2" + few,
			},
		},
		"quote inside a field": {
			"S1,al\"ice,1,,acme\nS2,bob\n",
			[]string{
				`1:6: bare " in non-quoted-field | put the field in quotes and write quotes in it twice`,
				"2:1: a record must have at least secret, user and uid, but has only 2" + few,
			},
		},
		"duplicate token": {
			"S1,alice,1,,acme\nS1,bob,2,,acme\n",
			[]string{"2:1: an earlier line has the same token | remove one of the two records"},
		},
		"several problems": {
			"S1,alice\n\nS1,bob,2,,a b\n# S3\n",
			[]string{
				"1:1: a record must have at least secret, user and uid, but has only 2" + few, "3:11:" + noName,
				"4:1: a record must have at least secret, user and uid, but has only 1" + few,
			},
		},
		"record on two lines": {
			"S1,\"al\nice \",1,,acme\nS2,bob\n",
			[]string{
				"1:4:" + space,
				"3:1: a record must have at least secret, user and uid, but has only 2" + few,
			},
		},
		"omitted tenant": {
			"S1,alice,1\nS2,bob,2,dev,ops\nS3,carol,3,,acme\nS4,dave,4\n",
			[]string{"1:10:" + omitted, "2:14:" + omitted, "4:9:" + omitted},
		},
	})
}

// TestSuspiciousRecords checks the warnings for records that the server accepts, but that are
// probably mistakes.
func TestSuspiciousRecords(t *testing.T) {
	checkFindings(t, validate.Tokens, map[string]finding{
		"typographic quotes": {
			"S1,bob,2,“dev,ops”,,acme\n", []string{"1:10:" + typographic, "1:17:" + unread},
		},
		"typographic quotes around a user": {"S1,‘bob’,2,,acme\n", []string{"1:4:" + typographic}},
		"apostrophes": {
			"S1,bob,2,'dev,ops',,acme\n", []string{"1:10:" + apostrophe, "1:15:" + unread},
		},
		"groups without quotes":    {"S1,bob,2,dev,ops,,acme\n", []string{"1:14:" + unread}},
		"groups and the tenant":    {"S1,bob,2,\"dev,ops\",,acme\n", nil},
		"apostrophe inside a name": {"S1,o'brien,2,dev,,acme\n", nil},
		"semicolons": {
			"S1,bob,2,dev;ops,,acme\n",
			[]string{
				"1:10: warning: a group contains a semicolon or a vertical bar, which does not separate groups | " +
					"separate groups with commas",
			},
		},
		"header": {
			"token,user,uid,groups,,acme\n",
			[]string{
				"1:1: warning: the record looks like a header, but the server accepts its first field as a secret | " +
					"remove the record: the format has no header",
			},
		},
		"comment with slashes": {
			"//S1,bob,2,,acme\n",
			[]string{
				"1:1: warning: the record looks like a comment, but the server accepts its first field as a secret | " +
					"remove the record: the format has no comments",
			},
		},
		"comment with a number sign": {
			"#S1,bob,2,dev,,acme\n",
			[]string{
				"1:1: the record looks like a comment, but the server would accept its secret: remove the record, or put " +
					"the secret in quotes | remove the record",
			},
		},
		"unsupported hash": {
			"{SSHA}abc,bob,2,dev,,acme\n",
			[]string{
				"1:1: is a hash of the format {SSHA}, which is not supported: write the token itself | htpasswd -nB USER " +
					"prints a bcrypt hash; a token is written as it is",
			},
		},
	})
}

// TestPasswords checks the problems that only password files have.
func TestPasswords(t *testing.T) {
	checkFindings(t, validate.Passwords, map[string]finding{
		"good": {"S1,alice,1,dev,,acme\nS1,alice,1,dev,,globex\n", nil},
		"duplicate user": {
			"S1,alice,1,,acme\nS2,alice,2,,acme\n",
			[]string{"2:4: an earlier line has the same user and tenant | remove one of the two records"},
		},
		"no password": {
			",alice,1,,acme\n",
			[]string{"1:1: empty password | write a password or its bcrypt hash (htpasswd -nB), or remove the record"},
		},
		"colon in the user name": {
			"S1,al:ice,1,,acme\n",
			[]string{
				"1:4: the user name must not contain a colon (RFC 7617, section 2) " +
					"| use a name without a colon: Basic authentication cannot send it",
			},
		},
		"incomplete hash": {
			"$2y$05$half,alice,1,,acme\n",
			[]string{
				"1:1: begins with $2 but is not a valid bcrypt hash | use the complete 60-character hash (htpasswd -nB)",
			},
		},
		"excessive bcrypt cost": {
			"$2y$31$" + strings.Repeat("a", 53) + ",alice,1,,acme\n",
			[]string{"1:1: the bcrypt cost must be at most 16 | hash it with a cost of at most 16"},
		},
	})
}

// TestReadable checks the warning for a file with secrets that the group or other users may read.
// A policy file contains no secrets and has no warning.
func TestReadable(t *testing.T) {
	for mode, want := range map[os.FileMode][]string{
		0o600: nil,
		0o400: nil,
		0o640: {"1:1: warning: other users may read the file (mode 0640) | chmod 600 FILE"},
		0o604: {"1:1: warning: other users may read the file (mode 0604) | chmod 600 FILE"},
	} {
		t.Run(fmt.Sprintf("mode %04o", mode), func(t *testing.T) {
			path := file(t, "file", "S1,alice,1,,acme\n")
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			for _, kind := range []string{validate.Tokens, validate.Passwords} {
				if diff := cmp.Diff(want, found(t, path, kind)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", kind, diff)
				}
			}
		})
	}
	path := file(t, "file", `{"user":"alice"}`)
	if err := os.Chmod(path, 0o644); err != nil { // #nosec G302 -- the test needs this mode
		t.Fatal(err)
	}
	if got := found(t, path, validate.ABAC); got != nil {
		t.Errorf("policy that other users may read: %v", got)
	}
}
