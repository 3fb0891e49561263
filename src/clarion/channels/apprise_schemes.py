"""The services of Apprise that can be providers, by the scheme of their URLs.

All of them are called over HTTP. Left out are those that read files, run programs, speak to the
desktop or the system log, send datagrams, open threads, or use another protocol, such as `mailto`:
text messages, e-mail and webhooks have channels of their own.
"""

from __future__ import annotations

# These reach hosts of their vendors only.
OF_VENDORS = frozenset(
    {
        "46elks", "atalk", "azure", "brevo", "bulksms", "bulkvs", "burstsms", "chanify",
        "clickatell", "clicksend", "d7sms", "dingtalk", "discord", "feishu", "flock",
        "freemobile", "gchat", "github", "httpsms", "ifttt", "ilert", "incidentio",
        "join", "kavenegar", "kumulos", "lark", "line", "mailersend", "msg91", "msgbird", "nexmo",
        "notifiarr", "o365", "octopush", "onesignal", "opsgenie", "pagerduty", "pagertree",
        "pbul", "plivo", "postmark", "pover", "prowl", "push", "pushed", "pushme", "pushy",
        "reddit", "resend", "revolt", "ryver", "schan", "sendgrid", "ses", "seven", "signl4",
        "sinch", "slack", "smsmanager", "sns", "spike", "splunk", "squadcast", "strmlabs", "telnyx",
        "tgram", "threema", "twilio", "twist", "viber", "voipms", "vonage", "webex", "wecombot",
        "whatsapp", "wxpusher", "wxteams", "zoom", "zulip",
    }
)  # fmt: skip
# These reach the host that the URL names: it must not have a private address.
SELF_HOSTED = frozenset(
    {
        "apprise", "apprises", "bark", "barks", "form", "forms", "gotify", "gotifys", "hassio",
        "hassios", "humhub", "humhubs", "infobip", "json", "jsons", "mastodon", "mastodons",
        "misskey", "misskeys", "mmost", "mmosts", "ncloud", "nclouds", "nctalk", "nctalks",
        "ntfy", "ntfys", "parsep", "parseps", "pushdeer", "pushdeers", "rocket", "rockets",
        "signal", "signals", "smseagle", "smseagles", "synology", "synologys", "workflow",
        "workflows", "xml", "xmls",
    }
)  # fmt: skip
ALLOWED = OF_VENDORS | SELF_HOSTED
